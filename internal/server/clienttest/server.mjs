// Starts the built program for a file of tests, on a free port of this machine.
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

// picture is the example image, a PNG, and the embedded model's answer about it.
export const picture = {
  bytes: readFileSync('examples/pictures/house-and-heart.png'),
  question: 'What do you see?',
  answer: 'There is a pink house and a black heart.',
};

// start runs `foretoken serve` with the embedded model and further arguments, and resolves when
// it is ready. The server ends with the process of the tests.
//   url        its address, without a slash at the end
//   status()   what GET /v1/status says
//   kill()     ends it without a warning
export async function start(...args) {
  const program = process.env.FORETOKEN_BIN;
  if (!program) throw new Error('FORETOKEN_BIN: want the path of the built program; ./run sets it');
  const server = spawn(program, ['serve', '--port', '0', '--log-format', 'json', ...args], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  process.once('exit', () => server.kill());
  const lines = createInterface({ input: server.stderr });
  const said = [];
  const url = await new Promise((resolve, reject) => {
    let address;
    server.once('error', reject);
    server.once('exit', (code) => reject(new Error(`foretoken serve ended with ${code}:\n${said.join('\n')}`)));
    lines.on('line', (line) => {
      if (said.push(line) > 1000) said.shift();
      let entry;
      try {
        entry = JSON.parse(line);
      } catch {
        return;
      }
      if (entry.msg === 'listening') address = entry.url;
      if (entry.msg === 'ready') resolve(address);
    });
  });
  server.unref(); // from here on it does not keep the tests from ending
  server.stderr.unref();
  return {
    url,
    status: async () => (await fetch(`${url}/v1/status`)).json(),
    kill: () =>
      new Promise((resolve) => {
        server.ref();
        server.once('exit', resolve);
        server.kill('SIGKILL');
      }),
  };
}

// startSlow is start for answers that are to be cut off: portable code takes minutes for some
// thousand tokens, so that they cannot have come to their end before.
export const startSlow = (...args) => start('--isa', 'generic', ...args);

// idle resolves when an aborted request has been taken from the engine, before its answer came to
// an end by itself, and nothing else runs or waits; it fails when that never happens.
export async function idle(server) {
  for (let tries = 0; tries < 30_000; tries++) { // minutes, which only a fault takes
    const { models } = await server.status();
    if (models.every((m) => m.running === 0 && m.waiting === 0)) {
      const metrics = await (await fetch(`${server.url}/metrics`)).text();
      if (!/^foretoken_requests_finished_total{.*reason="canceled"} [1-9]/m.test(metrics)) {
        throw new Error('the answer came to its end');
      }
      return;
    }
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error('sequences are still running');
}
