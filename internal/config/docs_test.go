package config

import (
	"os"
	"strings"
	"testing"
)

// The names of the requirements' groups M1 and M2, written down here so that
// none can drop out of the table unseen.
func required() []string {
	return strings.Fields(`
		SANDBOX_IMAGE SANDBOX_CPU_LIMIT SANDBOX_MEMORY_LIMIT SANDBOX_DEFAULT_TIMEOUT HOST PORT
		MANAGER_URL WORKER_ID
		FLY_API_TOKEN FLY_APP_NAME FLY_REGION
		SANDBOX_TIMEOUT_MS SANDBOX_MEMORY_MB SANDBOX_CPUS POLL_INTERVAL_MS MAX_CONCURRENT_JOBS
		SHUTDOWN_TIMEOUT_MS MONITOR_INTERVAL_MS HEALTH_CHECK_PORT LOG_LEVEL STORAGE_QUOTA_LIMIT_BYTES
		DAYTONA_* SANDBOX_MEMORY_GB SANDBOX_CPU SANDBOX_DISK_GB SANDBOX_SNAPSHOT HEARTBEAT_INTERVAL IDLE_*
		RESTART_COOLDOWN MAX_RESTART_ATTEMPTS ESCALATION_WINDOW ANOMALY_* ACK_SLA
		DATABASE_URL DIRECTOR_API_KEY MANAGER_API_KEY AUDIT_LOG_RETENTION_DAYS SANDBOX_BASE
		JWT_SECRET
		MAX_JOB_COST DEFAULT_RPM DEFAULT_TPM MAX_RETRIES RETRY_BASE_DELAY RETRY_MAX_DELAY
		CIRCUIT_BREAKER_THRESHOLD CIRCUIT_BREAKER_TIMEOUT`)
}

func TestEveryRequiredVariableHasAStanding(t *testing.T) {
	t.Parallel()
	rows := map[string]variable{}
	for _, v := range variables() {
		if _, twice := rows[v.name]; twice {
			t.Errorf("%s stands twice in the table", v.name)
		}
		rows[v.name] = v
	}
	for _, name := range required() {
		if _, ok := rows[name]; !ok {
			t.Errorf("%s is missing from the table", name)
		}
	}
}

func TestTablesAgree(t *testing.T) {
	t.Parallel()
	envs, keys := map[string]bool{}, map[string]bool{}
	for _, s := range settings() {
		if envs[s.env] || keys[s.key] {
			t.Errorf("%s or %s stands twice", s.env, s.key)
		}
		envs[s.env], keys[s.key] = true, true
		if s.help == "" || len(s.roles) == 0 {
			t.Errorf("%s has no meaning or no reader", s.key)
		}
	}
	for _, v := range variables() {
		switch v.standing {
		case Used:
			if !envs[v.name] {
				t.Errorf("%s is said to be used and no setting reads it", v.name)
			}
		case Alias:
			if !envs[v.of] || v.convert == nil || envs[v.name] {
				t.Errorf("%s is an alias of nothing, or a setting itself", v.name)
			}
		case Refused:
			if v.reason == "" || envs[v.name] {
				t.Errorf("%s is refused without a reason, or read by a setting", v.name)
			}
		}
	}
}

const (
	docFile  = "../../docs/configuration.md"
	docBegin = "<!-- generated from internal/config: begin -->\n"
	docEnd   = "<!-- generated from internal/config: end -->\n"
)

func TestDocumentationMatches(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(docFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(raw), docBegin)
	got, after, ok2 := strings.Cut(rest, docEnd)
	if !ok1 || !ok2 {
		t.Fatalf("%s has lost its markers", docFile)
	}
	want := "\n" + Markdown() + "\n"
	if got == want {
		return
	}
	if !*update {
		t.Fatalf("%s differs from the tables; run go test ./internal/config -update", docFile)
	}
	if err := os.WriteFile(docFile, []byte(before+docBegin+want+docEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
