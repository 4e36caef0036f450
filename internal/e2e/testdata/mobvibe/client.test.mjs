// What the sandboxes of coding sessions must do, as their client tests it.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { SandboxLifecycle, SandboxManager } from './client.mjs';

const limit = { timeout: 120_000 };
const manager = new SandboxManager({ api: process.env.MACHINES_API, token: 'any token' });
const lifecycle = new SandboxLifecycle(manager);

before(() => lifecycle.startCleanup());
after(() => lifecycle.shutdown());

test('construction fails without a token', () => {
  assert.throws(() => new SandboxManager({ api: 'http://127.0.0.1', token: '' }), /FLY_API_TOKEN/);
});

test('a sandbox is created with an id and an address', limit, async () => {
  const sandbox = await lifecycle.startSandbox('create');
  assert.match(sandbox.id, /^[0-9a-f]{14}$/);
  assert.match(sandbox.ip, /^fd/);
  assert.equal(sandbox.name, 'session-create');
  assert.equal(sandbox.region, 'sjc');
  await lifecycle.stopSandbox('create');
});

test('a command runs in it', limit, async () => {
  await lifecycle.startSandbox('exec');
  const hello = await lifecycle.execInSandbox('exec', ['echo', 'Hello from sandbox']);
  assert.match(hello.stdout, /Hello from sandbox/);
  assert.equal(hello.exit_code, 0);
  const session = await lifecycle.execInSandbox('exec', ['sh', '-c', 'echo $SESSION_ID; echo wrong >&2; exit 3']);
  assert.deepEqual(session, { stdout: 'exec\n', stderr: 'wrong\n', exit_code: 3 });
  await lifecycle.stopSandbox('exec');
  await assert.rejects(lifecycle.execInSandbox('exec', ['true']), /exec/);
});

test('it is destroyed cleanly', limit, async () => {
  const { id } = await lifecycle.startSandbox('destroy');
  assert.equal((await manager.getSandbox(id)).state, 'started');
  await lifecycle.stopSandbox('destroy');
  assert.equal(await manager.getSandbox(id), null);
  assert.equal(lifecycle.sessions.get('destroy'), null);
  await lifecycle.stopSandbox('destroy'); // a warning, and nothing else
});

test('stale ones are removed, and others stay', limit, async () => {
  const old = await lifecycle.startSandbox('old');
  lifecycle.sandboxes.get('old').createdAt -= 31 * 60_000;
  const young = await lifecycle.startSandbox('young');
  await lifecycle.removeStale();
  assert.equal(await manager.getSandbox(old.id), null);
  assert.equal((await manager.getSandbox(young.id)).id, young.id);
});

test('limits hold', limit, async () => {
  const { id } = await manager.createSandbox({ sessionId: 'limits', memory: 256 });
  const greedy = await manager.execCommand(id, ['sh', '-c', 'head -c 600m /dev/zero | tail -c 600m | wc -c; echo survived']);
  assert.ok(greedy.exit_code !== 0 || !/^629145600/.test(greedy.stdout), `600 MB fit into 256: ${JSON.stringify(greedy)}`);
  await manager.destroySandbox(id).catch((error) => assert.equal(error.status, 404)); // running out of memory may have ended it
  assert.equal(await manager.getSandbox(id), null);
});

test('sandboxes do not see each other', limit, async () => {
  await lifecycle.startSandbox('one');
  await lifecycle.startSandbox('two');
  await lifecycle.execInSandbox('one', ['sh', '-c', 'echo secret > /workspace/file']);
  const other = await lifecycle.execInSandbox('two', ['cat', '/workspace/file']);
  assert.notEqual(other.exit_code, 0);
});

test('a shutdown leaves nothing', limit, async () => {
  const ids = [...lifecycle.sandboxes.values()].map(({ id }) => id);
  assert.ok(ids.length >= 3);
  await lifecycle.shutdown();
  for (const id of ids) assert.equal(await manager.getSandbox(id), null);
  assert.deepEqual(await manager.request('GET'), []);
});

test('nobody gets in without a token', limit, async () => {
  const response = await fetch(manager.machines);
  assert.equal(response.status, 401);
  assert.ok((await response.json()).error);
});
