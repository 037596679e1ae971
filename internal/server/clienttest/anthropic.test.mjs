// Anthropic's own client.
import assert from 'node:assert/strict';
import { test } from 'node:test';

import Anthropic from '@anthropic-ai/sdk';

import { idle, picture, start, startSlow } from './server.mjs';

const server = await start();
const clientOf = ({ url }) => new Anthropic({ baseURL: url, apiKey: 'none', maxRetries: 0 });
const client = clientOf(server);
const story = { model: 'tiny', max_tokens: 24, seed: 7, messages: [{ role: 'user', content: 'Tell me a story about a cat.' }] };
const weather = {
  name: 'weather',
  description: 'Weather of a place',
  input_schema: {
    type: 'object',
    properties: { place: { type: 'string', enum: ['Paris', 'Rome'] } },
    required: ['place'],
    additionalProperties: false,
  },
};

test('chat', async () => {
  const message = await client.messages.create({ ...story, system: 'You tell stories.' });
  assert.equal(message.type, 'message');
  assert.equal(message.content[0].type, 'text');
  assert.ok(message.content[0].text.length > 0);
  assert.ok(['end_turn', 'max_tokens'].includes(message.stop_reason));
  const { input_tokens } = await client.messages.countTokens({
    model: 'tiny', system: 'You tell stories.', messages: story.messages,
  });
  assert.equal(input_tokens, message.usage.input_tokens + message.usage.cache_read_input_tokens);
});

test('models', async () => {
  const page = await client.models.list();
  const [model] = page.data;
  assert.deepEqual([model.type, model.id, model.display_name], ['model', 'tiny', 'tiny']);
  assert.ok(Date.parse(model.created_at) > 0);
  assert.deepEqual([page.has_more, page.first_id, page.last_id], [false, 'tiny', 'tiny']);
  assert.deepEqual(await client.models.retrieve('tiny'), model);
});

test('a stream is the message', async () => {
  const request = { ...story, temperature: 0 };
  const whole = await client.messages.create(request);
  const stream = client.messages.stream(request);
  let text = '';
  stream.on('text', (delta) => { text += delta; });
  const message = await stream.finalMessage();
  assert.equal(text, whole.content[0].text);
  assert.deepEqual(message.content.map((b) => b.text), whole.content.map((b) => b.text));
  assert.equal(message.stop_reason, whole.stop_reason);
  assert.equal(message.usage.output_tokens, whole.usage.output_tokens);
});

test('stop sequences and a beginning', async () => {
  const message = await client.messages.create({
    ...story, max_tokens: 100, temperature: 0, stop_sequences: ['a'],
    messages: [...story.messages, { role: 'assistant', content: 'Once upon' }],
  });
  assert.equal(message.stop_reason, 'stop_sequence');
  assert.equal(message.stop_sequence, 'a');
});

test('images', async () => {
  const source = { type: 'base64', media_type: 'image/png', data: picture.bytes.toString('base64') };
  const looking = {
    model: 'tiny', max_tokens: 40, temperature: 0,
    messages: [{ role: 'user', content: [{ type: 'image', source }, { type: 'text', text: picture.question }] }],
  };
  const message = await client.messages.create(looking);
  assert.equal(message.content[0].text, picture.answer);
  assert.equal(await client.messages.stream(looking).finalText(), picture.answer);
  source.data = 'aGk=';
  await assert.rejects(client.messages.create(looking), /messages\[0\]\.content\[0\]\.source\.data: image or video 1: not a PNG/);
});

test('tools round trip', async () => {
  const messages = [{ role: 'user', content: 'Weather in Rome?' }];
  const request = {
    model: 'tiny', max_tokens: 500, seed: 7, tools: [weather], tool_choice: { type: 'tool', name: 'weather' }, messages,
  };
  for (const message of [await client.messages.create(request), await client.messages.stream(request).finalMessage()]) {
    assert.equal(message.stop_reason, 'tool_use');
    const use = message.content.at(-1);
    assert.equal(use.name, 'weather');
    assert.ok(['Paris', 'Rome'].includes(use.input.place));
    const answer = await client.messages.create({
      ...request, max_tokens: 8, tool_choice: { type: 'auto' },
      messages: [
        ...messages, { role: 'assistant', content: message.content },
        { role: 'user', content: [{ type: 'tool_result', tool_use_id: use.id, content: 'sunny' }] },
      ],
    });
    assert.ok(answer.usage.output_tokens > 0);
  }
});

const prompted = ({ usage }) => usage.input_tokens + usage.cache_read_input_tokens;

test('threads', async () => {
  const moving = clientOf(server);
  const fields = { model: 'tiny', max_tokens: 8, seed: 7, system: 'You tell stories.' };
  const thread = moving.beta.messages.thread(fields);
  const replies = [];
  // The prompt of a turn is the whole conversation, though its request has one message.
  const turn = async (send) => {
    const reply = await send({ role: 'user', content: 'My name is Bob. What is my name?' });
    const { input_tokens } = await client.messages.countTokens({
      model: fields.model, system: fields.system, messages: thread.messages.slice(0, -1),
    });
    assert.equal(prompted(reply), input_tokens);
    assert.equal(thread.messages.length, 2 * replies.push(reply));
    assert.equal(thread.previousMessageId, reply.id);
  };
  await turn((message) => thread.send(message));
  await turn((message) => thread.send(message));
  await turn((message) => thread.stream(message).finalMessage());
  moving.baseURL = (await start()).url; // has no thread: the client sends the whole conversation again
  await turn((message) => thread.send(message));
  await turn((message) => thread.send(message));
  const lost = { type: 'continue', previous_message_id: replies[0].id };
  await assert.rejects(client.beta.messages.create({ ...story, thread: lost }), (error) => {
    assert.ok(error instanceof Anthropic.NotFoundError);
    assert.equal(error.error.error.details.error_code, 'thread_not_found');
    return true;
  });
});

test('tool runner', async () => {
  const places = [];
  const tool = { ...weather, parse: (input) => input, run: ({ place }) => { places.push(place); return 'sunny'; } };
  const runner = client.beta.messages.toolRunner({
    model: 'tiny', max_tokens: 500, seed: 7, max_iterations: 3, tools: [tool], messages: [{ role: 'user', content: 'Weather in Rome?' }],
    tool_choice: { type: 'tool', name: 'weather', disable_parallel_tool_use: true },
  });
  let last = 0;
  for await (const message of runner) {
    assert.equal(message.stop_reason, 'tool_use');
    assert.ok(prompted(message) > last);
    last = prompted(message);
  }
  assert.ok(places.length >= 2 && places.every((place) => ['Paris', 'Rome'].includes(place)));
});

test('an answer held to a schema', async () => {
  const message = await client.messages.create({
    ...story, max_tokens: 500,
    output_config: {
      format: {
        type: 'json_schema',
        schema: { type: 'object', properties: { ok: { type: 'boolean' } }, required: ['ok'], additionalProperties: false },
      },
    },
  });
  assert.equal(typeof JSON.parse(message.content[0].text).ok, 'boolean');
});

test('errors', async () => {
  await assert.rejects(client.messages.create({ ...story, model: 'absent' }), (error) => {
    assert.ok(error instanceof Anthropic.NotFoundError);
    assert.equal(error.error.error.type, 'not_found_error');
    assert.match(error.message, /tiny/);
    return true;
  });
  await assert.rejects(client.messages.create({ ...story, top_p: 7 }), (error) => {
    assert.ok(error instanceof Anthropic.BadRequestError);
    assert.match(error.message, /top_p/);
    return true;
  });
});

test('abort mid-stream', async () => {
  const slow = await startSlow();
  const stream = clientOf(slow).messages.stream({
    ...story, max_tokens: 3000,
    output_config: { format: { type: 'json_schema', schema: { type: 'array', items: { type: 'integer' }, minItems: 900 } } },
  });
  let events = 0;
  await assert.rejects(async () => {
    for await (const event of stream) {
      if (event.type === 'content_block_delta' && ++events === 3) stream.abort();
    }
  }, Anthropic.APIUserAbortError);
  await idle(slow);
});
