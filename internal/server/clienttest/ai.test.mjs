// Vercel's AI SDK, through its provider for servers like this one, against the built program.
import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, Output, generateText, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';
import { idle, picture, start, startSlow } from './server.mjs';

const modelOf = (server) =>
  createOpenAICompatible({ name: 'foretoken', baseURL: `${server.url}/v1`, includeUsage: true, supportsStructuredOutputs: true })('tiny');

describe('ai', () => {
  let server;
  let model;
  const hello = { prompt: 'Tell me a story about a cat.', seed: 7, maxOutputTokens: 24, maxRetries: 0 };

  before(async () => {
    server = await start();
    model = modelOf(server);
  });

  it('streams what it says whole', async () => {
    const whole = await generateText({ ...hello, model });
    assert.ok(whole.text);
    assert.equal(whole.finishReason, 'length');
    assert.equal(whole.usage.outputTokens, 24);
    const stream = streamText({ ...hello, model });
    let text = '';
    for await (const piece of stream.textStream) text += piece;
    assert.equal(text, whole.text);
    assert.equal((await stream.usage).outputTokens, 24);
  });

  it('sees images', async () => {
    const messages = [{ role: 'user', content: [{ type: 'image', image: picture.bytes }, { type: 'text', text: picture.question }] }];
    const { text } = await generateText({ model, messages, temperature: 0, maxRetries: 0 });
    assert.equal(text, picture.answer);
  });

  it('runs tools and goes on', async () => {
    const asked = [];
    const r = await generateText({
      ...hello,
      model,
      maxOutputTokens: 200,
      tools: {
        weather: tool({
          description: 'The weather somewhere',
          inputSchema: z.object({ city: z.enum(['Rome', 'Oslo']) }),
          execute: async ({ city }) => {
            asked.push(city);
            return `It is sunny in ${city}.`;
          },
        }),
      },
      stopWhen: stepCountIs(2),
      prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? { type: 'tool', toolName: 'weather' } : 'none' }),
    });
    assert.equal(r.steps.length, 2);
    assert.equal(r.steps[0].finishReason, 'tool-calls');
    assert.equal(asked.length, 1);
    assert.ok(['Rome', 'Oslo'].includes(asked[0]));
    assert.equal(r.steps[1].toolCalls.length, 0);
  });

  it('holds answers to a schema', async () => {
    const r = await generateText({
      ...hello,
      model,
      maxOutputTokens: 200,
      output: Output.object({ schema: z.object({ color: z.enum(['black', 'white']), age: z.number().int().min(1).max(20) }) }),
    });
    assert.ok(['black', 'white'].includes(r.output.color));
    assert.ok(Number.isInteger(r.output.age));
  });

  it('says what is wrong', async () => {
    await assert.rejects(generateText({ ...hello, model, temperature: -1 }), (e) => {
      assert.ok(APICallError.isInstance(e));
      assert.equal(e.statusCode, 400);
      assert.match(e.message, /temperature/);
      return true;
    });
  });

  it('frees the sequence of a client that leaves', async () => {
    const slow = await startSlow();
    const controller = new AbortController();
    const stream = streamText({
      ...hello,
      model: modelOf(slow),
      maxOutputTokens: 3000,
      abortSignal: controller.signal,
      providerOptions: { foretoken: { logit_bias: { 8183: -100, 8185: -100 } } }, // it never ends by itself
    });
    let pieces = 0;
    for await (const _ of stream.textStream) {
      if (++pieces === 4) controller.abort();
    }
    assert.ok(pieces < 1000);
    await idle(slow);
  });
});
