// Asks each URL once with clients that retry by default, and prints how each of them ended.
//
//	node retry.mjs SECONDS URL...
//
// A client that has not ended after so many seconds sleeps. The clients ask below URL/NAME/.
import Anthropic from '@anthropic-ai/sdk';
import axios from 'axios';
import axiosRetry from 'axios-retry';
import got from 'got';
import ky from 'ky';
import OpenAI from 'openai';

const [seconds, ...urls] = process.argv.slice(2);
const messages = [{ role: 'user', content: 'Tell me of the gate.' }];

// axios-retry retries no 429 unless it is told to.
axiosRetry(axios, { retryCondition: (err) => err.response?.status === 429, retryDelay: axiosRetry.exponentialDelay });

const clients = {
  got: (url) => got(url),
  ky: (url) => ky(url),
  'axios-retry': (url) => axios.get(url),
  openai: (baseURL) => new OpenAI({ baseURL, apiKey: 'k' }).chat.completions.create({ model: 'm', messages }),
  anthropic: (baseURL) => new Anthropic({ baseURL, apiKey: 'k' }).messages.create({ model: 'm', messages, max_tokens: 1 }),
};

async function ended(client, url) {
  const start = Date.now();
  const sleeps = new Promise((resolve) => setTimeout(resolve, seconds * 1000, 'sleeps'));
  const status = clients[client](`${url}/${client}/`).then(
    () => 'succeeds',
    (err) => String(err.status ?? err.response?.status ?? err.response?.statusCode ?? err),
  );
  return { client, url, status: await Promise.race([status, sleeps]), seconds: (Date.now() - start) / 1000 };
}

const all = urls.flatMap((url) => Object.keys(clients).map((client) => ended(client, url)));
console.log(JSON.stringify(await Promise.all(all)));
process.exit(0); // also if a client sleeps
