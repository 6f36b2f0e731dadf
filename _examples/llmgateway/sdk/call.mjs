// Streams one answer through a gateway with an official SDK, and prints what the SDK made of it.
//
//	node call.mjs openai-chat|openai-responses|anthropic-messages URL KEY [usage]
//
// With "usage" a chat asks for its usage.
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';

const [format, url, key, usage] = process.argv.slice(2);
const model = 'model-1';
const messages = [{ role: 'user', content: 'Tell me of the gate.' }];
const result = { text: '', model: '', input: 0, output: 0, headers: {}, error: null };

const calls = {
  'openai-chat': async () => {
    const client = new OpenAI({ baseURL: url + '/v1', apiKey: key });
    const options = usage === 'usage' ? { stream_options: { include_usage: true } } : {};
    const stream = await open(client.chat.completions.create({ model, messages, stream: true, ...options }));
    for await (const chunk of stream) {
      result.text += chunk.choices[0]?.delta?.content ?? '';
      result.model = chunk.model;
      count(chunk.usage?.prompt_tokens, chunk.usage?.completion_tokens);
    }
  },
  'openai-responses': async () => {
    const client = new OpenAI({ baseURL: url + '/v1', apiKey: key });
    const stream = await open(client.responses.create({ model, input: messages[0].content, stream: true }));
    for await (const event of stream) {
      if (event.type === 'response.output_text.delta') result.text += event.delta;
      result.model = event.response?.model ?? result.model;
      count(event.response?.usage?.input_tokens, event.response?.usage?.output_tokens);
    }
  },
  'anthropic-messages': async () => {
    const client = new Anthropic({ baseURL: url, apiKey: key });
    const stream = await open(client.messages.create({ model, messages, max_tokens: 100, stream: true }));
    for await (const event of stream) {
      if (event.delta?.type === 'text_delta') result.text += event.delta.text;
      result.model = event.message?.model ?? result.model;
      count(event.message?.usage?.input_tokens, event.usage?.output_tokens);
    }
  },
};

// open returns the stream of a call, and keeps the headers of its response.
async function open(call) {
  const { data, response } = await call.withResponse();
  result.headers = Object.fromEntries(response.headers);
  return data;
}

function count(input, output) {
  result.input = input ?? result.input;
  result.output = output ?? result.output;
}

try {
  await calls[format]();
} catch (err) {
  const { status, type, code, message } = err;
  result.error = { class: err.constructor.name, status: status ?? 0, type: type ?? '', code: code ?? '', message };
  if (err.headers) result.headers = Object.fromEntries(err.headers);
}
console.log(JSON.stringify(result));
