// Asks for one answer through a gateway with an official SDK, and prints what the SDK made of it.
//
//	node call.mjs openai-chat|openai-responses|anthropic-messages URL KEY [usage]
//	node call.mjs gemini|ollama URL KEY [whole|retry]
//
// The answer is a stream, except with "whole". With "usage" a chat asks for its usage. With "retry"
// the SDK is told to retry.
import Anthropic from '@anthropic-ai/sdk';
import { GoogleGenAI } from '@google/genai';
import { Ollama } from 'ollama';
import OpenAI from 'openai';

const [format, url, key, option] = process.argv.slice(2);
const model = 'model-1';
const messages = [{ role: 'user', content: 'Tell me of the gate.' }];
const result = { text: '', input: 0, output: 0, headers: {}, error: null };

const calls = {
  'openai-chat': async () => {
    const client = new OpenAI({ baseURL: url + '/v1', apiKey: key });
    const options = option === 'usage' ? { stream_options: { include_usage: true } } : {};
    const stream = await open(client.chat.completions.create({ model, messages, stream: true, ...options }));
    for await (const chunk of stream) {
      result.text += chunk.choices[0]?.delta?.content ?? '';
      count(chunk.usage?.prompt_tokens, chunk.usage?.completion_tokens);
    }
  },
  'openai-responses': async () => {
    const client = new OpenAI({ baseURL: url + '/v1', apiKey: key });
    const stream = await open(client.responses.create({ model, input: messages[0].content, stream: true }));
    for await (const event of stream) {
      if (event.type === 'response.output_text.delta') result.text += event.delta;
      count(event.response?.usage?.input_tokens, event.response?.usage?.output_tokens);
    }
  },
  'anthropic-messages': async () => {
    const client = new Anthropic({ baseURL: url, apiKey: key });
    const stream = await open(client.messages.create({ model, messages, max_tokens: 100, stream: true }));
    for await (const event of stream) {
      if (event.delta?.type === 'text_delta') result.text += event.delta.text;
      count(event.message?.usage?.input_tokens, event.usage?.output_tokens);
    }
  },
  'gemini': async () => {
    const httpOptions = { baseUrl: url, retryOptions: option === 'retry' ? { attempts: 3 } : undefined };
    const { models } = new GoogleGenAI({ apiKey: key, httpOptions });
    const ask = { model, contents: messages[0].content };
    const whole = option === 'whole';
    for await (const part of whole ? [await models.generateContent(ask)] : await models.generateContentStream(ask)) {
      result.text += part.text ?? '';
      count(part.usageMetadata?.promptTokenCount, part.usageMetadata?.candidatesTokenCount);
    }
  },
  'ollama': async () => {
    const client = new Ollama({ host: url, headers: { Authorization: `Bearer ${key}` } });
    const whole = option === 'whole';
    const answer = await client.chat({ model, messages, stream: !whole });
    for await (const part of whole ? [answer] : answer) {
      result.text += part.message.content;
      count(part.prompt_eval_count, part.eval_count);
    }
  },
};

// keepHeaders keeps the headers of responses for SDKs that do not show them.
function keepHeaders() {
  const inner = globalThis.fetch;
  globalThis.fetch = async (...args) => {
    const response = await inner(...args);
    result.headers = Object.fromEntries(response.headers);
    return response;
  };
}

// googleStatus returns the status in the message of an ApiError, which ends with Google's error.
function googleStatus({ name, message }) {
  return name === 'ApiError' ? JSON.parse(message.slice(message.indexOf('{'))).error.status : undefined;
}

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
  if (format === 'gemini' || format === 'ollama') keepHeaders();
  await calls[format]();
} catch (err) {
  const { status, status_code, type, code, message } = err;
  result.error = {
    class: err.constructor.name, status: status ?? status_code ?? 0, type: type ?? googleStatus(err) ?? '',
    code: code ?? '', message,
  };
  if (err.headers) result.headers = Object.fromEntries(err.headers);
}
console.log(JSON.stringify(result));
