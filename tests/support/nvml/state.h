/* What the driver remembers, and the arithmetic of it.
 *
 * Power is a schedule in CLOCK_MONOTONIC, so that the counter, the sample buffer and the two power readings all follow
 * from it: nothing runs in the background, and a killed process takes nothing with it.
 *
 * The structs mirror those of fake.py field by field; every field is 8 bytes wide or text, so there is no padding.
 * fake.py calls the functions that are not static, on its own mapping.
 */
#include <stdint.h>
#include <time.h>

enum { CARDS = 8, TEXT = 96, PIDS = 32, MIGS = 7, SEGMENTS = 256, CALLS = 256, BUFFER = 119, LOST = 64 };
enum group { ALL, OPEN, NAME, COUNTER, SAMPLES, POWER, INSTANT, LIMITS, DEFAULT_LIMIT, PERSISTENCE, TEMPERATURE,
             PROCESSES, SPEED, SET, GROUPS };

/* From one moment to another the driver says `value` (mW or mJ), whatever the card does. */
struct garbage { int64_t from_ns, until_ns; double value; };
struct segment { int64_t start_ns; double high_mw, low_mw; int64_t period_ns, on_ns, phase_ns; double base_mj; };
struct card {
    char uuid[TEXT], name[TEXT], bus_id[TEXT];
    int64_t min_mw, max_mw, default_mw, limit_mw, persistence, temperature, sm_mhz, cores, slowdowns;
    int64_t n_pids, pids[PIDS], n_migs;
    char migs[MIGS][TEXT];
    int64_t counter_period_ns, sample_period_ns, sample_latency_ns, sample_means, sample_type, average_ns, stuck_at_ns;
    int64_t fail[GROUPS], reads[GROUPS], slow_ns[GROUPS];
    struct garbage bad_power, bad_counter;
    double counter_zero_mj; /* what the counter leaves out: it began to count here */
    int64_t n_segments;
    struct segment segments[SEGMENTS];
    int64_t n_lost, lost_mw[LOST]; /* limits that were replaced by somebody who had not seen them */
};
struct call { int64_t pid, uid, card, function, value, result, time_ns; };
struct state {
    int64_t size, n_cards, clock_ns, wall_base_ns, step_at_ns, step_ns, only_uid, n_calls;
    struct call calls[CALLS];
    struct card cards[CARDS];
};

int64_t fake_state_size(void) { return sizeof(struct state); }

int64_t fake_now_ns(const struct state *s) {
    if (s->clock_ns >= 0) return s->clock_ns;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static const struct segment *segment_at(const struct card *c, int64_t t) {
    int64_t n = __atomic_load_n(&c->n_segments, __ATOMIC_ACQUIRE), first = n > SEGMENTS ? n - SEGMENTS : 0, i = n - 1;
    while (i > first && c->segments[i % SEGMENTS].start_ns > t) i--;
    return &c->segments[i % SEGMENTS];
}

static int64_t into_period(const struct segment *g, int64_t t) {
    int64_t r = (t - g->phase_ns) % g->period_ns;
    return r < 0 ? r + g->period_ns : r;
}

/* Millijoules of this segment from its phase to t (1 mW ns = 1e-9 mJ). */
static double integral(const struct segment *g, int64_t t) {
    int64_t x = t - g->phase_ns;
    if (!g->period_ns) return g->high_mw * x * 1e-9;
    int64_t r = into_period(g, t), on = (x - r) / g->period_ns * g->on_ns + (r < g->on_ns ? r : g->on_ns);
    return (g->high_mw * on + g->low_mw * (x - on)) * 1e-9;
}

double fake_energy_mj(const struct state *s, int card, int64_t t) {
    const struct segment *g = segment_at(&s->cards[card], t);
    return g->base_mj + integral(g, t) - integral(g, g->start_ns);
}

double fake_power_mw(const struct state *s, int card, int64_t t) {
    const struct segment *g = segment_at(&s->cards[card], t);
    return !g->period_ns || into_period(g, t) < g->on_ns ? g->high_mw : g->low_mw;
}

/* From now on the card draws this; what it drew before stays in its counter and its buffer. */
void fake_schedule(struct state *s, int card, double high_mw, double low_mw, int64_t period_ns, int64_t on_ns,
                   int64_t phase_ns) {
    struct card *c = &s->cards[card];
    int64_t now = fake_now_ns(s), n = c->n_segments;
    /* The counter starts far above 0: a test may stop the clock at a moment long before that of the machine. */
    struct segment g = {now, high_mw, low_mw, period_ns, on_ns, phase_ns, 1e13};
    if (n) g.base_mj = fake_energy_mj(s, card, now);
    c->segments[n % SEGMENTS] = g;
    __atomic_store_n(&c->n_segments, n + 1, __ATOMIC_RELEASE);
}

int64_t fake_wall_ns(const struct state *s, int64_t t) {
    return t + s->wall_base_ns + (t >= s->step_at_ns ? s->step_ns : 0);
}

static int is_garbage(const struct garbage *g, int64_t t) { return g->from_ns <= t && t < g->until_ns; }

static double mean_mw(const struct state *s, int card, int64_t t, int64_t ns) {
    const struct garbage *bad = &s->cards[card].bad_power;
    if (is_garbage(bad, t)) return bad->value;
    return ns ? (fake_energy_mj(s, card, t) - fake_energy_mj(s, card, t - ns)) / ns * 1e9 : fake_power_mw(s, card, t);
}
