/* A driver that is not there: speaks NVML to the unmodified binding, from a state file that all processes map. */
#define _GNU_SOURCE
#include <pthread.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state.h"

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
       INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, EMPTY = 1001, STUCK = 1002, HANG = 1003 };
union value { double d; unsigned int ui; unsigned long ul; unsigned long long ull; long long sll; int si;
              unsigned short us; };
struct sample { unsigned long long stamp_us; union value value; };
struct field { uint32_t id, scope; int64_t stamp_us, latency_us; uint32_t type, result; union value value; };
struct process { unsigned int pid; unsigned long long memory; unsigned int gpu_instance, compute_instance; };
struct pci { char legacy[16]; unsigned int domain, bus, device, id, subsystem; char bus_id[32]; };

/* ---- who is asking ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct state *mapped;
static char mapped_path[4096];
static pid_t opened_by;
static int openings;

/* A fork while another thread holds the lock must not leave the child waiting for it. */
static void free_lock(void) { pthread_mutex_init(&lock, NULL); }
__attribute__((constructor)) static void at_load(void) { pthread_atfork(NULL, NULL, free_lock); }

/* The variable may name another file at any moment (one per test); an old mapping stays, as threads may be in it. */
static struct state *state(void) {
    const char *path = getenv("FAKE_NVML_STATE");
    if (!path) return NULL;
    pthread_mutex_lock(&lock);
    if (strcmp(path, mapped_path)) {
        struct stat about;
        void *at = MAP_FAILED;
        int file = open(path, O_RDWR | O_CLOEXEC);
        if (file >= 0) {
            if (!fstat(file, &about) && about.st_size >= (off_t)sizeof(struct state))
                at = mmap(NULL, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
            close(file);
        }
        mapped = at == MAP_FAILED || ((struct state *)at)->size != sizeof(struct state) ? NULL : at;
        snprintf(mapped_path, sizeof mapped_path, "%s", mapped ? path : "");
    }
    struct state *s = mapped;
    pthread_mutex_unlock(&lock);
    return s;
}

/* A handle says which process made it and what it stands for, so that one carried over a fork is seen to be stale. */
static void *handle_of(int card, int mig) { return (void *)(((intptr_t)getpid() << 16) | (mig << 8) | (card + 1)); }

static int open_state(struct state **s) {
    *s = state();
    return opened_by == getpid() && openings && *s ? SUCCESS : UNINITIALIZED;
}

/* How a question ends: at once, after a while, or (HANG) not before somebody heals the card. */
static int refusal(struct card *c, enum group group) {
    int64_t slow_ns = __atomic_load_n(&c->slow_ns[group], __ATOMIC_ACQUIRE), result;
    if (slow_ns) nanosleep(&(struct timespec){slow_ns / 1000000000, slow_ns % 1000000000}, NULL);
    while ((result = __atomic_load_n(&c->fail[group], __ATOMIC_ACQUIRE)) == HANG) usleep(5000);
    return (int)result;
}

/* Stale comes before uninitialised: a child that did not open the driver must not get by with its parent's handle. */
static int find(void *handle, struct state **s, int *card, int *mig) {
    intptr_t h = (intptr_t)handle;
    if (h >> 16 != getpid()) return INVALID_ARGUMENT;
    int result = open_state(s);
    if (result) return result;
    *card = (int)(h & 0xff) - 1, *mig = (int)(h >> 8 & 0xff);
    if (*card < 0 || *card >= (*s)->n_cards) return INVALID_ARGUMENT;
    return refusal(&(*s)->cards[*card], ALL);
}

/* Every question about a card comes through here: counted, and refused if a test asked for that. */
static int ask(void *handle, enum group group, struct state **s, int *card) {
    int mig, result = find(handle, s, card, &mig);
    if (result) return result;
    if (mig) return INVALID_ARGUMENT;
    __atomic_fetch_add(&(*s)->cards[*card].reads[group], 1, __ATOMIC_RELAXED);
    return refusal(&(*s)->cards[*card], group);
}

#define ASK(group)                                              \
    struct state *s;                                            \
    int card, result = ask(handle, group, &s, &card);           \
    if (result && result != EMPTY && result != STUCK) return result; \
    struct card *c = &s->cards[card];                           \
    (void)c

static int text(char *to, unsigned int size, const char *from) {
    if (strlen(from) >= size) return INSUFFICIENT_SIZE;
    strcpy(to, from);
    return SUCCESS;
}

/* ---- NVML: the library and finding cards ---- */

int nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    if (!state()) return DRIVER_NOT_LOADED;
    if (opened_by != getpid()) openings = 0;
    opened_by = getpid(), openings++;
    return SUCCESS;
}

int nvmlShutdown(void) {
    if (opened_by != getpid() || !openings) return UNINITIALIZED;
    openings--;
    return SUCCESS;
}

const char *nvmlErrorString(int result) { return result ? "an error of the driver" : "success"; }
int nvmlSystemGetDriverVersion(char *to, unsigned int size) { return text(to, size, "999.00"); }
int nvmlSystemGetNVMLVersion(char *to, unsigned int size) { return text(to, size, "13.999.00"); }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { return *version = 13000, SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned int *count) {
    struct state *s;
    int result = open_state(&s);
    return result ? result : (*count = s->n_cards, SUCCESS);
}

static int opened(struct state *s, int card, int mig, void **handle) {
    __atomic_fetch_add(&s->cards[card].reads[OPEN], 1, __ATOMIC_RELAXED);
    int result = refusal(&s->cards[card], ALL);
    if (!result) result = refusal(&s->cards[card], OPEN);
    if (result) return result;
    *handle = handle_of(card, mig);
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **handle) {
    struct state *s;
    int result = open_state(&s);
    if (result) return result;
    return index < s->n_cards ? opened(s, index, 0, handle) : INVALID_ARGUMENT;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    struct state *s;
    int result = open_state(&s);
    if (result) return result;
    for (int card = 0; card < s->n_cards; card++) {
        struct card *c = &s->cards[card];
        if (!strcmp(uuid, c->uuid)) return opened(s, card, 0, handle);
        for (int i = 0; i < c->n_migs; i++)
            if (!strcmp(uuid, c->migs[i])) return opened(s, card, i + 1, handle);
    }
    return NOT_FOUND;
}

int nvmlDeviceGetUUID(void *handle, char *to, unsigned int size) {
    struct state *s;
    int card, mig, result = find(handle, &s, &card, &mig);
    return result ? result : text(to, size, mig ? s->cards[card].migs[mig - 1] : s->cards[card].uuid);
}

int nvmlDeviceGetIndex(void *handle, unsigned int *index) {
    ASK(NAME);
    return *index = card, SUCCESS;
}

int nvmlDeviceGetName(void *handle, char *to, unsigned int size) {
    ASK(NAME);
    return text(to, size, c->name);
}

int nvmlDeviceGetPciInfo_v3(void *handle, struct pci *to) {
    ASK(NAME);
    memset(to, 0, sizeof *to);
    sscanf(c->bus_id, "%x:%x:%x", &to->domain, &to->bus, &to->device);
    return text(to->bus_id, sizeof to->bus_id, c->bus_id);
}

/* ---- MIG ---- */

int nvmlDeviceGetMigMode(void *handle, unsigned int *current, unsigned int *pending) {
    ASK(NAME);
    return *current = *pending = c->n_migs > 0, SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned int *count) {
    ASK(NAME);
    return *count = c->n_migs ? MIGS : 0, SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned int index, void **mig) {
    ASK(NAME);
    return index < c->n_migs ? (*mig = handle_of(card, index + 1), SUCCESS) : NOT_FOUND;
}

int nvmlDeviceIsMigDeviceHandle(void *handle, unsigned int *is) {
    struct state *s;
    int card, mig, result = find(handle, &s, &card, &mig);
    return result ? result : (*is = mig > 0, SUCCESS);
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *handle, void **parent) {
    struct state *s;
    int card, mig, result = find(handle, &s, &card, &mig);
    if (result) return result;
    return mig ? (*parent = handle_of(card, 0), SUCCESS) : INVALID_ARGUMENT;
}

/* ---- readings ---- */

int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *millijoules) {
    ASK(COUNTER);
    int64_t t = result == STUCK ? c->stuck_at_ns : fake_now_ns(s);
    if (c->counter_period_ns) t -= t % c->counter_period_ns;
    double energy = fake_energy_mj(s, card, t) - c->counter_zero_mj;
    if (is_garbage(&c->bad_counter, fake_now_ns(s))) energy = c->bad_counter.value;
    return *millijoules = energy >= 0x1p64 ? ~0ULL : energy > 0 ? (unsigned long long)energy : 0, SUCCESS;
}

static union value typed(int64_t type, double x) {
    union value v = {.ull = 0};
    switch (type) {
    case 0: v.d = x; break;
    case 1: v.ui = (unsigned int)(long long)(x + .5); break; /* below 0: as drivers do, a huge number */
    case 2: v.ul = x + .5; break;
    case 3: v.ull = x + .5; break;
    case 4: v.sll = x + .5; break;
    case 5: v.si = x + .5; break;
    case 6: v.us = x + .5; break;
    }
    return v;
}

int nvmlDeviceGetPowerUsage(void *handle, unsigned int *milliwatts) {
    ASK(POWER);
    return *milliwatts = typed(1, mean_mw(s, card, fake_now_ns(s), c->average_ns)).ui, SUCCESS;
}

/* An unknown field is told in its own entry; the call itself succeeds. */
int nvmlDeviceGetFieldValues(void *handle, int count, struct field *fields) {
    struct state *s;
    int card, result = ask(handle, INSTANT, &s, &card);
    if (result && result != NOT_SUPPORTED && result != INVALID_ARGUMENT && result != NO_PERMISSION) return result;
    for (int i = 0; i < count; i++) {
        fields[i].result = fields[i].id == 186 ? result : NOT_SUPPORTED; /* 186: NVML_FI_DEV_POWER_INSTANT */
        fields[i].type = 1;
        fields[i].stamp_us = fake_wall_ns(s, fake_now_ns(s)) / 1000;
        fields[i].value.ull = 0;
        if (!fields[i].result) fields[i].value = typed(1, mean_mw(s, card, fake_now_ns(s), 0));
    }
    return SUCCESS;
}

int nvmlDeviceGetSamples(void *handle, int type, unsigned long long last_seen_us, int *value_type, unsigned int *count,
                         struct sample *samples) {
    ASK(SAMPLES);
    if (type != 0) return INVALID_ARGUMENT; /* 0: NVML_TOTAL_POWER_SAMPLES */
    if (!c->sample_period_ns) return NOT_SUPPORTED;
    *value_type = c->sample_type;
    if (!samples) return *count = BUFFER, SUCCESS;
    int64_t newest = fake_now_ns(s) - c->sample_latency_ns;
    unsigned int n = 0;
    newest -= newest % c->sample_period_ns;
    for (int i = BUFFER - 1; i >= 0 && n < *count && result != EMPTY; i--) {
        int64_t t = newest - i * c->sample_period_ns;
        unsigned long long stamp_us = fake_wall_ns(s, t) / 1000;
        if (stamp_us <= last_seen_us) continue;
        samples[n].stamp_us = stamp_us;
        samples[n++].value = typed(c->sample_type, mean_mw(s, card, t, c->sample_means ? c->sample_period_ns : 0));
    }
    *count = n;
    return n || result == EMPTY ? SUCCESS : NOT_FOUND;
}

/* The limit that this process last saw on each card: NVML sets without asking, a test wants to know what that cost. */
static int64_t seen_mw[CARDS];

int nvmlDeviceGetPowerManagementLimit(void *handle, unsigned int *milliwatts) {
    ASK(LIMITS);
    return *milliwatts = seen_mw[card] = __atomic_load_n(&c->limit_mw, __ATOMIC_ACQUIRE), SUCCESS;
}

int nvmlDeviceGetPowerManagementLimitConstraints(void *handle, unsigned int *low, unsigned int *high) {
    ASK(LIMITS);
    return *low = c->min_mw, *high = c->max_mw, SUCCESS;
}

int nvmlDeviceGetPowerManagementDefaultLimit(void *handle, unsigned int *milliwatts) {
    ASK(DEFAULT_LIMIT);
    return *milliwatts = c->default_mw, SUCCESS;
}

int nvmlDeviceGetPersistenceMode(void *handle, int *on) {
    ASK(PERSISTENCE);
    return *on = c->persistence, SUCCESS;
}

int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned int *celsius) {
    ASK(TEMPERATURE);
    return sensor ? INVALID_ARGUMENT : (*celsius = c->temperature, SUCCESS);
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned int *count, struct process *processes) {
    ASK(PROCESSES);
    unsigned int room = processes ? *count : 0;
    *count = c->n_pids;
    if (room < *count) return INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < *count; i++) processes[i] = (struct process){c->pids[i], 1 << 20, ~0u, ~0u};
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned int *count, struct process *processes) {
    return nvmlDeviceGetComputeRunningProcesses_v3(handle, count, processes);
}

int nvmlDeviceGetMaxClockInfo(void *handle, int clock, unsigned int *megahertz) {
    ASK(SPEED);
    return clock == 1 ? (*megahertz = c->sm_mhz, SUCCESS) : NOT_SUPPORTED; /* 1: NVML_CLOCK_SM */
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *reasons) {
    ASK(SPEED);
    return *reasons = c->slowdowns, SUCCESS;
}

int nvmlDeviceGetNumGpuCores(void *handle, unsigned int *cores) {
    ASK(SPEED);
    return *cores = c->cores, SUCCESS;
}

int nvmlDeviceGetArchitecture(void *handle, unsigned int *architecture) {
    ASK(NAME);
    return *architecture = 9, SUCCESS; /* Hopper */
}

/* ---- setters: each that gets here is written down, with its outcome ---- */

enum { SET_LIMIT, SET_PERSISTENCE };

static void set_limit(struct card *c, int card, int64_t milliwatts) {
    int64_t before = __atomic_exchange_n(&c->limit_mw, milliwatts, __ATOMIC_ACQ_REL);
    if (before != seen_mw[card]) c->lost_mw[__atomic_fetch_add(&c->n_lost, 1, __ATOMIC_ACQ_REL) % LOST] = before;
    seen_mw[card] = milliwatts;
}

static int set(void *handle, int function, int64_t value) {
    struct state *s;
    int card = -1, result = ask(handle, SET, &s, &card);
    if (card < 0 || card >= CARDS) return result;
    struct card *c = &s->cards[card];
    if (!result && geteuid() && s->only_uid >= 0 && geteuid() != (uid_t)s->only_uid) result = NO_PERMISSION;
    if (!result) result = refusal(c, function == SET_LIMIT ? LIMITS : PERSISTENCE);
    if (!result && function == SET_LIMIT && (value < c->min_mw || value > c->max_mw)) result = INVALID_ARGUMENT;
    if (!result && function == SET_LIMIT) set_limit(c, card, value);
    if (!result && function == SET_PERSISTENCE) __atomic_store_n(&c->persistence, value, __ATOMIC_RELEASE);
    int64_t i = __atomic_fetch_add(&s->n_calls, 1, __ATOMIC_ACQ_REL);
    s->calls[i % CALLS] = (struct call){getpid(), geteuid(), card, function, value, result, fake_now_ns(s)};
    return result;
}

int nvmlDeviceSetPowerManagementLimit(void *handle, unsigned int milliwatts) {
    return set(handle, SET_LIMIT, milliwatts);
}

int nvmlDeviceSetPersistenceMode(void *handle, int on) { return set(handle, SET_PERSISTENCE, on); }
