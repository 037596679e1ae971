// Batches with OpenAI's client for Node against the built program.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { before, describe, it } from 'node:test';
import OpenAI, { toFile } from 'openai';
import { start } from './server.mjs';

describe('openai batches', () => {
  let client, server;
  const dir = mkdtempSync(join(tmpdir(), 'foretoken-'));
  const line = (id, body) =>
    `${JSON.stringify({ custom_id: id, method: 'POST', url: '/v1/chat/completions', body: { model: 'tiny', messages: [{ role: 'user', content: 'Hi.' }], ...body } })}\n`;

  const serve = async () => {
    server = await start('--state-dir', dir, '--batch-lines', '1');
    client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
  };
  before(serve);

  const begin = async (content) => {
    const file = await client.files.create({ file: await toFile(Buffer.from(content), 'in.jsonl'), purpose: 'batch' });
    assert.equal(file.bytes, content.length);
    return client.batches.create({ input_file_id: file.id, endpoint: '/v1/chat/completions', completion_window: '24h' });
  };

  const wait = async (id, status) => {
    for (let tries = 0; tries < 30_000; tries++) { // minutes, which only a fault takes
      const batch = await client.batches.retrieve(id);
      if (batch.status === status) return batch;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    throw new Error(`${id} is not ${status}`);
  };

  it('runs one to its end', async () => {
    const batch = await wait((await begin(line('a', { max_tokens: 4, ignore_eos: true }) + '{\n')).id, 'completed');
    assert.deepEqual(batch.request_counts, { total: 2, completed: 1, failed: 1 });
    const output = JSON.parse(await (await client.files.content(batch.output_file_id)).text());
    assert.equal(output.custom_id, 'a');
    assert.equal(output.response.body.usage.completion_tokens, 4);
    assert.equal(typeof output.response.body.foretoken.seed, 'number');
    assert.match(await (await client.files.content(batch.error_file_id)).text(), /line 2/);
    assert.ok((await client.files.delete(batch.output_file_id)).deleted);
  });

  // endless takes minutes, one line at a time.
  const endless = Array.from({ length: 100 }, (_, i) => line(`${i}`, { max_tokens: 4000, ignore_eos: true })).join('');

  it('cancels and lists', async () => {
    const batch = await begin(endless);
    await wait(batch.id, 'in_progress');
    assert.equal((await client.batches.cancel(batch.id)).status, 'cancelling');
    await wait(batch.id, 'cancelled');
    const ids = [];
    for await (const b of client.batches.list({ limit: 1 })) ids.push(b.id);
    assert.equal(ids.length, 2);
    assert.equal(ids[0], batch.id);
  });

  it('finds a batch expired whose window ended while no server ran', async () => {
    const { id, created_at: began, expires_at: end } = await begin(endless);
    assert.equal(end, began + 24 * 3600);
    await wait(id, 'in_progress');
    await server.kill();
    const file = join(dir, 'batches', id);
    const text = readFileSync(file, 'utf8');
    writeFileSync(file, text.replace(`"expires_at":${end}`, `"expires_at":${began}`));
    await serve();
    const batch = await wait(id, 'expired');
    assert.match(await (await client.files.content(batch.error_file_id)).text(), /batch_expired/);
  });
});
