// Ollama's own client.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Ollama } from 'ollama';

import { idle, picture, start, startSlow } from './server.mjs';

const server = await start();
const client = new Ollama({ host: server.url });
const story = { model: 'tiny', messages: [{ role: 'user', content: 'Tell me a story about a cat.' }], options: { num_predict: 24, seed: 7 } };

test('chat', async () => {
  const answer = await client.chat(story);
  assert.equal(answer.message.role, 'assistant');
  assert.ok(answer.message.content.length > 0);
  assert.ok(answer.done);
  assert.ok(answer.eval_count > 0 && answer.eval_count <= 24);
  assert.ok(answer.total_duration >= answer.eval_duration);
});

test('a stream is the answer', async () => {
  const whole = await client.chat(story);
  let text = '';
  let last;
  for await (const part of await client.chat({ ...story, stream: true })) {
    text += part.message.content;
    last = part;
  }
  assert.equal(text, whole.message.content);
  assert.equal(last.done_reason, whole.done_reason);
  assert.equal(last.eval_count, whole.eval_count);
});

test('generate', async () => {
  const answer = await client.generate({ model: 'tiny', prompt: 'Once upon a', raw: true, options: { temperature: 0, num_predict: 6 } });
  assert.match(answer.response, /^ time/);
  let text = '';
  for await (const part of await client.generate({ model: 'tiny', prompt: 'Once upon a', raw: true, stream: true, options: { temperature: 0, num_predict: 6 } })) {
    text += part.response;
  }
  assert.equal(text, answer.response);
});

test('an answer held to a schema', async () => {
  const schema = { type: 'object', properties: { ok: { type: 'boolean' } }, required: ['ok'], additionalProperties: false };
  const answer = await client.chat({ ...story, format: schema, options: { num_predict: 500, seed: 7 } });
  assert.equal(typeof JSON.parse(answer.message.content).ok, 'boolean');
});

test('tools round trip', async () => {
  const tools = [{ type: 'function', function: { name: 'weather', description: 'Weather of a place', parameters: { type: 'object', required: ['place'], properties: { place: { type: 'string' } } } } }];
  const answer = await client.chat({
    ...story, tools, options: { num_predict: 8, seed: 7 },
    messages: [
      { role: 'user', content: 'Weather in Rome?' },
      { role: 'assistant', content: '', tool_calls: [{ function: { name: 'weather', arguments: { place: 'Rome' } } }] },
      { role: 'tool', tool_name: 'weather', content: 'sunny' },
    ],
  });
  assert.ok(answer.eval_count > 0);
});

test('images', async () => {
  const options = { temperature: 0 };
  const images = [picture.bytes]; // the client makes base64 of them
  const answer = await client.chat({ model: 'tiny', options, messages: [{ role: 'user', content: picture.question, images }] });
  assert.equal(answer.message.content, picture.answer);
  assert.equal((await client.generate({ model: 'tiny', options, prompt: picture.question, images })).response, picture.answer);
  assert.ok((await client.show({ model: 'tiny' })).capabilities.includes('vision'));
  await assert.rejects(client.generate({ model: 'tiny', prompt: picture.question, images: ['aGk='] }), /images\[0\]: image or video 1: not a PNG/);
});

test('models', async () => {
  const { models } = await client.list();
  assert.equal(models[0].name, 'tiny');
  const shown = await client.show({ model: 'tiny' });
  assert.equal(shown.details.family, 'qwen3_5');
  assert.ok(shown.capabilities.includes('completion'));
  assert.equal((await client.ps()).models.length, 1);
  assert.match((await client.version()).version, /^\d+\.\d+\.\d+$/);
});

test('errors', async () => {
  await assert.rejects(client.chat({ ...story, model: 'absent' }), (error) => {
    assert.equal(error.status_code, 404);
    assert.match(error.message, /tiny/);
    return true;
  });
  await assert.rejects(client.chat({ ...story, options: { temperature: -1 } }), /options\.temperature/);
  await assert.rejects(client.pull({ model: 'llama3' }), /foretoken pull/);
});

test('abort mid-stream', async () => {
  const slow = await startSlow();
  const stream = await new Ollama({ host: slow.url }).chat({
    ...story, stream: true, options: { num_predict: 3000, seed: 7 },
    format: { type: 'array', items: { type: 'integer' }, minItems: 900 },
  });
  let parts = 0;
  await assert.rejects(async () => {
    for await (const part of stream) {
      assert.equal(part.done, false);
      if (++parts === 3) stream.abort();
    }
  }, { name: 'AbortError' });
  await idle(slow);
});
