// OpenAI's client for Node against the built program.
import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import OpenAI from 'openai';
import { idle, picture, start, startSlow } from './server.mjs';

const tools = [
  {
    type: 'function',
    function: {
      name: 'weather',
      description: 'The weather somewhere',
      strict: true,
      parameters: {
        type: 'object',
        properties: { city: { enum: ['Rome', 'Oslo'] } },
        required: ['city'],
        additionalProperties: false,
      },
    },
  },
];

const clientOf = (server) => new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });

describe('openai', () => {
  let server;
  let client;
  const hello = {
    model: 'tiny',
    seed: 7,
    max_completion_tokens: 24,
    messages: [{ role: 'user', content: 'Tell me a story about a cat.' }],
  };

  before(async () => {
    server = await start();
    client = clientOf(server);
  });

  it('chats', async () => {
    const c = await client.chat.completions.create(hello);
    assert.equal(c.object, 'chat.completion');
    assert.equal(c.choices[0].message.role, 'assistant');
    assert.ok(c.choices[0].message.content);
    assert.equal(c.usage.completion_tokens, 24);
    assert.equal(c.choices[0].finish_reason, 'length');
    assert.equal(c.foretoken.seed, 7);
  });

  it('streams what it says whole', async () => {
    const whole = await client.chat.completions.create({ ...hello, n: 2 });
    const stream = client.chat.completions.stream({ ...hello, n: 2, stream_options: { include_usage: true } });
    const end = await stream.finalChatCompletion();
    assert.deepEqual(
      end.choices.map((c) => [c.message.content, c.finish_reason]),
      whole.choices.map((c) => [c.message.content, c.finish_reason]),
    );
    assert.equal(end.usage.total_tokens, whole.usage.total_tokens);
  });

  it('calls tools and reads their results', async () => {
    const ask = { ...hello, max_completion_tokens: 200, tools, parallel_tool_calls: false };
    const first = await client.chat.completions.create({ ...ask, tool_choice: 'required' });
    const { message, finish_reason: reason } = first.choices[0];
    assert.equal(reason, 'tool_calls');
    assert.equal(message.tool_calls.length, 1);
    const [call] = message.tool_calls;
    assert.equal(call.function.name, 'weather');
    assert.ok(['Rome', 'Oslo'].includes(JSON.parse(call.function.arguments).city));
    const streamed = await client.chat.completions.stream({ ...ask, tool_choice: 'required' }).finalMessage();
    assert.equal(streamed.tool_calls[0].function.arguments, call.function.arguments);
    const second = await client.chat.completions.create({
      ...ask,
      max_completion_tokens: 16,
      tool_choice: 'none',
      messages: [...hello.messages, message, { role: 'tool', tool_call_id: call.id, content: 'It is sunny.' }],
    });
    assert.ok(second.choices[0].message.content);
    assert.equal(second.choices[0].message.tool_calls, undefined);
  });

  it('holds answers to a schema', async () => {
    const c = await client.chat.completions.parse({
      ...hello,
      max_completion_tokens: 200,
      response_format: {
        type: 'json_schema',
        json_schema: {
          name: 'cat',
          strict: true,
          schema: {
            type: 'object',
            properties: { color: { enum: ['black', 'white'] }, age: { type: 'integer', minimum: 1, maximum: 20 } },
            required: ['color', 'age'],
            additionalProperties: false,
          },
        },
      },
    });
    const cat = JSON.parse(c.choices[0].message.content);
    assert.ok(['black', 'white'].includes(cat.color));
    assert.ok(Number.isInteger(cat.age) && cat.age >= 1 && cat.age <= 20);
  });

  it('reports log-probabilities', async () => {
    const c = await client.chat.completions.create({ ...hello, max_completion_tokens: 4, logprobs: true, top_logprobs: 2 });
    const list = c.choices[0].logprobs.content;
    assert.equal(list.length, 4);
    assert.equal(Buffer.concat(list.map((l) => Buffer.from(l.bytes))).toString(), c.choices[0].message.content);
    assert.ok(list.every((l) => l.top_logprobs.length === 2 && l.logprob <= 0));
  });

  it('sees images', async () => {
    const url = `data:image/png;base64,${picture.bytes.toString('base64')}`;
    const looking = {
      model: 'tiny',
      temperature: 0,
      messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url, detail: 'high' } }, { type: 'text', text: picture.question }] }],
    };
    const c = await client.chat.completions.create(looking);
    assert.equal(c.choices[0].message.content, picture.answer);
    const streamed = await client.chat.completions.stream(looking).finalMessage();
    assert.equal(streamed.content, picture.answer);
    const r = await client.responses.create({
      model: 'tiny',
      temperature: 0,
      input: [{ role: 'user', content: [{ type: 'input_image', image_url: url, detail: 'auto' }, { type: 'input_text', text: picture.question }] }],
    });
    assert.equal(r.output_text, picture.answer);
    const [model] = (await client.models.list()).data;
    assert.deepEqual(model.input_modalities, ['text', 'image', 'video']);
    looking.messages[0].content[0].image_url.url = 'data:image/png;base64,aGk=';
    await assert.rejects(client.chat.completions.create(looking), (e) => {
      assert.ok(e instanceof OpenAI.BadRequestError);
      assert.equal(e.param, 'messages[0].content[0].image_url.url');
      return true;
    });
  });

  it('says what is wrong', async () => {
    await assert.rejects(client.chat.completions.create({ ...hello, model: 'gpt-9' }), (e) => {
      assert.ok(e instanceof OpenAI.NotFoundError);
      assert.equal(e.code, 'model_not_found');
      return true;
    });
    await assert.rejects(client.chat.completions.create({ ...hello, temperature: -1 }), (e) => {
      assert.ok(e instanceof OpenAI.BadRequestError);
      assert.equal(e.param, 'temperature');
      return true;
    });
    const { response } = await client.chat.completions.create({ ...hello, color: 'red' }).withResponse();
    assert.equal(response.headers.get('foretoken-ignored'), 'color');
    await assert.rejects(client.embeddings.create({ model: 'tiny', input: 'x' }), OpenAI.BadRequestError);
  });

  it('frees the sequence of a client that leaves', async () => {
    const slow = await startSlow();
    const stream = await clientOf(slow).chat.completions.create({
      ...hello,
      stream: true,
      max_completion_tokens: 3000,
      logit_bias: { 8183: -100, 8185: -100 }, // it never ends by itself
    });
    let chunks = 0;
    for await (const _ of stream) {
      if (++chunks === 4) stream.controller.abort();
    }
    assert.ok(chunks < 1000);
    await idle(slow);
  });

  it('continues texts', async () => {
    const c = await client.completions.create({ model: 'tiny', prompt: ['Once upon a time', 'The dog'], max_tokens: 8, seed: 1 });
    assert.deepEqual(c.choices.map((o) => o.index), [0, 1]);
    assert.ok(c.choices.every((o) => o.text));
  });

  it('makes responses and keeps them', async () => {
    const ask = { model: 'tiny', input: 'Tell me a story about a cat.', max_output_tokens: 20, seed: 3 };
    const first = await client.responses.create(ask);
    assert.ok(first.output_text);
    assert.equal(first.status, 'incomplete');
    const stream = client.responses.stream(ask);
    const end = await stream.finalResponse();
    assert.equal(end.output_text ?? end.output[0].content[0].text, first.output_text);
    const next = await client.responses.create({ ...ask, input: 'And then?', previous_response_id: first.id });
    assert.ok(next.usage.input_tokens > first.usage.input_tokens);
    assert.equal((await client.responses.retrieve(next.id)).output_text, next.output_text);
    await client.responses.delete(next.id);
    await assert.rejects(client.responses.retrieve(next.id), OpenAI.NotFoundError);
  });

  it('counts the input of responses', async () => {
    const ask = { model: 'tiny', instructions: 'You tell stories.', input: 'Tell me one.', max_output_tokens: 1 };
    const { usage } = await client.responses.create(ask);
    assert.equal((await client.responses.inputTokens.count({ model: ask.model, instructions: ask.instructions, input: ask.input })).input_tokens, usage.input_tokens);
    await assert.rejects(client.responses.compact({ model: 'tiny', input: 'a' }), /not compacted/);
  });

  it('calls tools in responses', async () => {
    const { function: f } = tools[0];
    const r = await client.responses.create({
      model: 'tiny',
      seed: 7,
      input: 'How is the weather?',
      tool_choice: 'required',
      parallel_tool_calls: false,
      tools: [{ type: 'function', ...f }],
    });
    const call = r.output.find((i) => i.type === 'function_call');
    assert.ok(['Rome', 'Oslo'].includes(JSON.parse(call.arguments).city));
    const next = await client.responses.create({
      model: 'tiny',
      seed: 7,
      previous_response_id: r.id,
      max_output_tokens: 16,
      input: [{ type: 'function_call_output', call_id: call.call_id, output: 'It is sunny.' }],
    });
    assert.ok(next.output_text);
  });

  it('lists models', async () => {
    const list = await client.models.list();
    assert.equal(list.data[0].id, 'tiny');
    assert.equal((await client.models.retrieve('tiny')).foretoken.loaded, true);
  });
});
