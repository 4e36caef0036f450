// A client of the Machines API as an orchestrator of coding sessions has it:
// SandboxManager speaks to the API, SandboxLifecycle keeps one sandbox for each
// session. Its address is the only thing that was changed for us.

export class SandboxManager {
  constructor({ api, token = process.env.FLY_API_TOKEN, app = process.env.FLY_APP_NAME || 'mobvibe-sandboxes' }) {
    if (!token) throw new Error('FLY_API_TOKEN is required');
    this.machines = `${api}/v1/apps/${app}/machines`;
    this.token = token;
  }

  async request(method, path = '', body) {
    const response = await fetch(this.machines + path, {
      method,
      headers: { Authorization: `Bearer ${this.token}`, 'Content-Type': 'application/json' },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout(30_000),
    });
    const text = await response.text();
    const data = text ? JSON.parse(text) : null;
    if (!response.ok) {
      const error = new Error(`${method} ${path}: ${response.status} ${data?.error}`);
      error.status = response.status;
      throw error;
    }
    return data;
  }

  async createSandbox({ sessionId, region = process.env.FLY_REGION || 'sjc', cpuKind = 'shared', memory = 512 }) {
    const machine = await this.request('POST', '', {
      name: `session-${sessionId}`,
      region,
      config: {
        image: 'registry.fly.io/mobvibe-sandbox:latest',
        guest: { cpu_kind: cpuKind, cpus: 1, memory_mb: memory },
        env: { SESSION_ID: sessionId },
        auto_destroy: true,
      },
    });
    return { id: machine.id, name: machine.name, ip: machine.private_ip, region: machine.region };
  }

  async destroySandbox(id) {
    await this.request('DELETE', `/${id}`);
  }

  async getSandbox(id) {
    try {
      return await this.request('GET', `/${id}`);
    } catch (error) {
      if (error.status === 404) return null;
      throw error;
    }
  }

  async execCommand(id, command) {
    const { stdout, stderr, exit_code } = await this.request('POST', `/${id}/exec`, { command, timeout: 300 });
    return { stdout, stderr, exit_code };
  }
}

export class SandboxLifecycle {
  constructor(manager, { maxAge = 30 * 60_000, interval = 60_000 } = {}) {
    this.manager = manager;
    this.sandboxes = new Map();
    this.sessions = new Map(); // stands for the column sandbox_id of the sessions' table
    this.maxAge = maxAge;
    this.interval = interval;
  }

  async startSandbox(sessionId) {
    const sandbox = await this.manager.createSandbox({ sessionId });
    this.sandboxes.set(sessionId, { id: sandbox.id, createdAt: Date.now() });
    this.sessions.set(sessionId, sandbox.id);
    return sandbox;
  }

  async stopSandbox(sessionId) {
    const tracked = this.sandboxes.get(sessionId);
    if (!tracked) {
      console.warn(`no sandbox for session ${sessionId}`);
      return;
    }
    await this.manager.destroySandbox(tracked.id);
    this.sandboxes.delete(sessionId);
    this.sessions.set(sessionId, null);
  }

  async execInSandbox(sessionId, command) {
    const tracked = this.sandboxes.get(sessionId);
    if (!tracked) throw new Error(`No sandbox for session ${sessionId}`);
    return this.manager.execCommand(tracked.id, command);
  }

  async removeStale(now = Date.now()) {
    for (const [sessionId, { createdAt }] of [...this.sandboxes]) {
      if (now - createdAt <= this.maxAge) continue;
      try {
        await this.stopSandbox(sessionId);
      } catch (error) {
        console.error('clean-up failed', sessionId, error.message);
      }
    }
  }

  startCleanup() {
    this.timer = setInterval(() => this.removeStale(), this.interval);
  }

  stopCleanup() {
    clearInterval(this.timer);
  }

  async shutdown() {
    await Promise.allSettled([...this.sandboxes.keys()].map((sessionId) => this.stopSandbox(sessionId)));
    this.stopCleanup();
  }
}
