package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Standing says what becomes of a variable that an earlier system knew.
type Standing string

// The standings. A refused variable that asks for a bound or a protection
// which would not be kept stops the start; one without such a promise, or one
// that is often set for other programs, is noted in the log and has no effect.
const (
	Used    Standing = "used"
	Alias   Standing = "alias"
	Refused Standing = "refused"
)

// variable is one row of the second table. A name that ends in * stands for
// every variable with that prefix.
type variable struct {
	name     string
	standing Standing
	of       string // the variable that it is an alias of
	convert  func(string) (string, error)
	reason   string // why it is refused
	noted    bool   // refused without stopping the start
}

// The reasons that several rows share.
const (
	agentsLater   = "comes with agents and their guardian"
	drivenLater   = "comes with the driver for rented machines"
	spendingLater = "comes with quotas and budgets"
	ownKeys       = "keys are made by Aurea at first start and kept in the data folder under manager/keys; use those"
)

// variables is the table: every name of the configuration groups M1 and M2 of
// the requirements, and the names of the sources behind them.
func variables() []variable {
	used := func(name string) variable { return variable{name: name, standing: Used} }
	stops := func(name, reason string) variable { return variable{name: name, standing: Refused, reason: reason} }
	noted := func(name, reason string) variable {
		return variable{name: name, standing: Refused, reason: reason, noted: true}
	}
	return []variable{
		used("HOST"),
		used("PORT"),
		used("MANAGER_URL"),
		used("WORKER_ID"),
		used("SANDBOX_BASE"),
		used("SANDBOX_IMAGE"),
		used("DATABASE_URL"),
		used("LOG_LEVEL"),
		{name: "MAX_CONCURRENT_JOBS", standing: Alias, of: "AUREA_CONCURRENCY", convert: asIs},
		used("SANDBOX_CPU_LIMIT"),
		used("SANDBOX_MEMORY_LIMIT"),
		used("SANDBOX_DEFAULT_TIMEOUT"),
		used("STORAGE_QUOTA_LIMIT_BYTES"),
		used("DIRECTOR_API_KEY"),
		{name: "SANDBOX_CPUS", standing: Alias, of: "SANDBOX_CPU_LIMIT", convert: asIs},
		{name: "SANDBOX_CPU", standing: Alias, of: "SANDBOX_CPU_LIMIT", convert: asIs},
		{name: "SANDBOX_MEMORY_MB", standing: Alias, of: "SANDBOX_MEMORY_LIMIT", convert: inUnits("MiB")},
		{name: "SANDBOX_MEMORY_GB", standing: Alias, of: "SANDBOX_MEMORY_LIMIT", convert: inUnits("GiB")},
		{name: "SANDBOX_DISK_GB", standing: Alias, of: "AUREA_DISK_LIMIT", convert: inUnits("GiB")},
		{name: "AUDIT_LOG_RETENTION_DAYS", standing: Alias, of: "AUREA_KEEP_AUDIT", convert: days},
		{name: "AWS_ENDPOINT_URL", standing: Alias, of: "AWS_ENDPOINT_URL_S3", convert: asIs},
		{name: "AWS_DEFAULT_REGION", standing: Alias, of: "AWS_REGION", convert: asIs},
		{name: "SANDBOX_TIMEOUT_MS", standing: Alias, of: "AUREA_SESSION_AGE", convert: milliseconds},
		{name: "SHUTDOWN_TIMEOUT_MS", standing: Alias, of: "AUREA_DRAIN_TIMEOUT", convert: milliseconds},

		stops("SANDBOX_SNAPSHOT", "sandboxes that start from a snapshot come later"),
		stops("MAX_JOB_COST", spendingLater),
		stops("DEFAULT_RPM", spendingLater),
		stops("DEFAULT_TPM", spendingLater),
		stops("CIRCUIT_BREAKER_THRESHOLD", agentsLater),
		stops("CIRCUIT_BREAKER_TIMEOUT", agentsLater),
		stops("HEARTBEAT_INTERVAL", agentsLater),
		stops("IDLE_*", agentsLater),
		stops("RESTART_COOLDOWN", agentsLater),
		stops("MAX_RESTART_ATTEMPTS", agentsLater),
		stops("ESCALATION_WINDOW", agentsLater),
		stops("ANOMALY_*", agentsLater),
		stops("ACK_SLA", agentsLater),
		stops("MANAGER_API_KEY", ownKeys),

		noted("POLL_INTERVAL_MS", "the worker waits for work on an open request, so there is no interval"),
		noted("MONITOR_INTERVAL_MS", "nothing is polled; deadlines are watched as they come"),
		noted("HEALTH_CHECK_PORT", "a worker listens on no port; ask the manager's /health"),
		noted("MAX_RETRIES", "each task carries its own max_retries"),
		noted("RETRY_BASE_DELAY", "retries wait 1 s, doubling to 60 s, with jitter"),
		noted("RETRY_MAX_DELAY", "retries wait 1 s, doubling to 60 s, with jitter"),
		noted("FLY_API_TOKEN", drivenLater),
		noted("FLY_APP_NAME", drivenLater),
		noted("FLY_REGION", drivenLater),
		noted("DAYTONA_*", drivenLater),
		noted("JWT_SECRET", "keys are random and looked up by hash; nothing is signed with a shared secret"),
	}
}

func (v variable) matches(name string) bool {
	if prefix, ok := strings.CutSuffix(v.name, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return v.name == name
}

// whenSet says what happens if the variable is set.
func (v variable) whenSet() string {
	switch {
	case v.standing == Used:
		return "takes effect"
	case v.standing == Alias:
		return "takes effect, unless `" + v.of + "` is set too"
	case v.noted:
		return "is noted in the log"
	}
	return "stops the start"
}

func asIs(text string) (string, error) { return text, nil }

func days(text string) (string, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 || n > 36500 {
		return "", fmt.Errorf("%q is not a number of days", clip(text))
	}
	return strconv.FormatInt(24*n, 10) + "h", nil
}

func milliseconds(text string) (string, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 {
		return "", fmt.Errorf("%q is not a number of milliseconds", clip(text))
	}
	return strconv.FormatInt(n, 10) + "ms", nil
}
