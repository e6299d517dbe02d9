/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/diagnose.h"

#include "sim/base/units.h"

#include <stdarg.h>
#include <string.h>

/* What stays reserved but unallocated with expandable segments: below 0.5 % in the matched runs of
 * Megatron-Bridge#4587 (none of 208 GB) and cosmos-rl#388. */
enum { EXPANDABLE_LEFT_PER_MILLE = 5 };

/* CUDA context, cuBLAS and NCCL take at least this much; more than a tenth of the device is not
 * explained by them (nccl#1685: 4.3 GB of 80 with an 8-GPU all-to-all). */
#define CONTEXT_BYTES (512 * BASE_MIB)
enum { MUCH_OUTSIDE_PERCENT = 10 };

/* Allocated plus request above this share: what is left is what context and communicators need. */
enum { FULL_PERCENT = 94 };

#define AMOUNT(bytes) base_bytes_format((bytes), (char[BASE_BYTES_TEXT]){ 0 })

__attribute__((format(printf, 2, 3))) static void say(diag_texts_t *texts, const char *fmt, ...)
{
    if (texts->n == DIAG_MAX_TEXTS)
        return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(texts->text[texts->n++], DIAG_TEXT, fmt, ap);
    va_end(ap);
}

__attribute__((format(printf, 3, 4))) static diag_change_t *
change(diag_result_t *res, const char *setting, const char *fmt, ...)
{
    static diag_change_t overflow; /* never read */
    diag_change_t *c =
        res->n_changes < DIAG_MAX_CHANGES ? &res->changes[res->n_changes++] : &overflow;
    memset(c, 0, sizeof(*c));
    snprintf(c->setting, sizeof(c->setting), "%s", setting);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(c->why, sizeof(c->why), fmt, ap);
    va_end(ap);
    return c;
}

const char *diag_verdict_name(diag_verdict_t verdict)
{
    static const char *const names[] = { "capacity", "fragmentation", "outside PyTorch",
                                         "not enough information" };
    return names[verdict];
}

static bool known(uint64_t bytes)
{
    return bytes != DIAG_UNKNOWN;
}

/* a - b, 0 when b is larger (figures are rounded), unknown when one is. */
static uint64_t less(uint64_t a, uint64_t b)
{
    if (!known(a) || !known(b))
        return DIAG_UNKNOWN;
    return a > b ? a - b : 0;
}

static uint64_t shortfall_of(const diag_record_t *rec)
{
    if (known(rec->figures[DIAG_SHORTFALL]))
        return rec->figures[DIAG_SHORTFALL];
    return less(rec->figures[DIAG_REQUEST], rec->figures[DIAG_FREE]);
}

static bool is_memory_line(const diag_record_t *rec)
{
    return !rec->is_failure && rec->kind != DIAG_KIND_SMI && rec->kind != DIAG_KIND_THEORY &&
           rec->kind != DIAG_KIND_NCCL_USE;
}

/* Reserved memory jumps by whole segments and is much alike on all ranks: what was allocated says
 * more. */
static uint64_t peak_of(const diag_record_t *rec)
{
    static const diag_figure_t by[] = { DIAG_MAX_ALLOCATED, DIAG_MAX_RESERVED, DIAG_ALLOCATED,
                                        DIAG_RESERVED, DIAG_USED };
    for (size_t i = 0; i < sizeof(by) / sizeof(by[0]); i++)
        if (known(rec->figures[by[i]]))
            return rec->figures[by[i]];
    return 0;
}

/* Whether b has a higher peak; what PyTorch says of itself comes before what nvidia-smi sees. */
static bool is_higher(const diag_record_t *a, const diag_record_t *b)
{
    if (a == NULL)
        return true;
    bool a_smi = a->kind == DIAG_KIND_SMI, b_smi = b->kind == DIAG_KIND_SMI;
    if (a_smi != b_smi)
        return a_smi;
    if (peak_of(a) != peak_of(b))
        return peak_of(b) > peak_of(a);
    uint64_t a_reserved = a->figures[DIAG_MAX_RESERVED], b_reserved = b->figures[DIAG_MAX_RESERVED];
    return known(a_reserved) && known(b_reserved) && b_reserved > a_reserved;
}

static bool is_first_of_its_rank(const diag_log_t *log, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (log->records[k].is_failure && log->records[k].rank == log->records[i].rank)
            return false;
    return true;
}

static void find_subjects(const diag_log_t *log, diag_result_t *res)
{
    enum { LOOK_AT = 4096 }; /* failures beyond this many are not told apart by rank */
    size_t n_failures = 0;
    for (size_t i = 0; i < log->n_records; i++) {
        const diag_record_t *rec = &log->records[i];
        if (!rec->is_failure && peak_of(rec) > 0 && is_higher(res->peak, rec))
            res->peak = rec;
        if (!rec->is_failure || ++n_failures > LOOK_AT)
            continue;
        if (res->failure == NULL)
            res->failure = rec;
        if (rec->rank >= 0 && is_first_of_its_rank(log, i))
            res->n_failed_ranks++;
        uint64_t s = shortfall_of(rec);
        if (res->worst == NULL ||
            (known(s) && (!known(shortfall_of(res->worst)) || s > shortfall_of(res->worst))))
            res->worst = rec;
    }
    if (res->n_failed_ranks < 2)
        res->worst = NULL;
}

/* The last line before the failure that gives the figures, of the same rank if ranks are known. */
static const diag_record_t *memory_line_for(const diag_log_t *log, const diag_record_t *failure)
{
    const diag_record_t *best = NULL;
    for (size_t i = 0; i < log->n_records; i++) {
        const diag_record_t *rec = &log->records[i];
        if (!is_memory_line(rec) ||
            (rec->rank >= 0 && failure->rank >= 0 && rec->rank != failure->rank))
            continue;
        if (best == NULL || rec->line < failure->line)
            best = rec;
    }
    return best;
}

static void fill_from(diag_result_t *res, uint64_t *f, const diag_record_t *rec)
{
    bool used = false;
    if (rec == NULL || known(f[DIAG_RESERVED]) || known(f[DIAG_CACHED]))
        return;
    if (!known(f[DIAG_ALLOCATED])) {
        f[DIAG_ALLOCATED] = rec->figures[DIAG_ALLOCATED];
        used |= known(f[DIAG_ALLOCATED]);
    }
    f[DIAG_RESERVED] = rec->figures[DIAG_RESERVED];
    f[DIAG_CACHED] = rec->figures[DIAG_CACHED];
    used |= known(f[DIAG_RESERVED]) || known(f[DIAG_CACHED]);
    if (used)
        say(&res->notes,
            "Allocated and reserved are of the memory line %zu, not of the moment of the failure.",
            rec->line);
}

static void fill_total(const diag_log_t *log, uint64_t *f, int64_t gpu)
{
    for (size_t i = 0; i < log->n_records && !known(f[DIAG_TOTAL]); i++) {
        const diag_record_t *rec = &log->records[i];
        if (rec->gpu >= 0 && gpu >= 0 && rec->gpu != gpu)
            continue;
        f[DIAG_TOTAL] = rec->figures[DIAG_TOTAL];
        if (!known(f[DIAG_FREE]) && rec->kind == DIAG_KIND_SMI)
            f[DIAG_FREE] = less(rec->figures[DIAG_TOTAL], rec->figures[DIAG_USED]);
    }
}

/* Where the device's bytes were. */
static void split(diag_result_t *res, const uint64_t *f)
{
    res->total = f[DIAG_TOTAL];
    res->free_bytes = f[DIAG_FREE];
    res->allocated = f[DIAG_ALLOCATED];
    res->cached = f[DIAG_CACHED];
    res->pools = f[DIAG_POOLS];
    res->request = f[DIAG_REQUEST];
    res->shortfall =
        known(f[DIAG_SHORTFALL]) ? f[DIAG_SHORTFALL] : less(f[DIAG_REQUEST], f[DIAG_FREE]);
    uint64_t reserved = f[DIAG_RESERVED];
    if (!known(reserved) && known(res->allocated) && known(res->cached))
        reserved = res->allocated + res->cached;
    if (!known(res->allocated))
        res->allocated = less(reserved, res->cached);
    uint64_t outside = less(less(res->total, res->free_bytes), reserved);
    if (known(f[DIAG_PROCESS])) {
        res->non_pytorch = less(f[DIAG_PROCESS], reserved);
        res->others = f[DIAG_OTHERS];
    } else {
        res->non_pytorch = outside;
        res->non_pytorch_has_others = known(outside);
    }
    uint64_t parts[] = { res->free_bytes, reserved, res->non_pytorch,
                         res->non_pytorch_has_others ? 0 : res->others };
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (!known(parts[i]))
            return;
        sum += parts[i];
    }
    res->unaccounted = less(res->total, sum);
}

static void advise_expandable(const diag_log_t *log, diag_result_t *res)
{
    diag_change_t *c =
        change(res, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
               "Segments grow page by page, so that free memory stays in one piece per stream "
               "(PyTorch 2.1 and later; since 2.9 PYTORCH_ALLOC_CONF means the same, the CUDA name "
               "wins).");
    if (log->has_graphs && !log->has_graph_register_off)
        say(&c->conflicts, "CUDA graphs: set NCCL_GRAPH_REGISTER=0 too (Megatron refuses the pair "
                           "without it before Blackwell).");
    say(&c->conflicts,
        "max_split_size_mb in the same text%s: together they can let reserved memory grow without "
        "bound on PyTorch 2.12 to 2.14 (pytorch#123548); use one of them.",
        strstr(log->conf, "max_split_size_mb") != NULL ? ", which this log shows" : "");
    say(&c->conflicts, "An inference engine that sleeps in the same process (vLLM): older ones "
                       "refuse it, newer ones switch it off for their own pool (vllm#40812).");
    say(&c->conflicts, "User-buffer registration: NCCL before 2.29.2 does not register memory of "
                       "expandable segments (slower, not wrong).");
    if (log->has_graphs)
        change(res, "PYTORCH_CUDA_ALLOC_CONF=graph_capture_record_stream_reuse:True",
               "Blocks that other streams used become free again during capture (PyTorch 2.10 and "
               "later); append it to expandable_segments:True.");
    if (res->failure->is_old_wording)
        change(res, "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512",
               "For PyTorch before 2.1, which this wording is of: large blocks are no longer cut "
               "up. Not together with expandable_segments.");
}

static void advise_smaller(diag_result_t *res, uint64_t missing)
{
    char need[BASE_BYTES_TEXT];
    diag_change_t *c = change(
        res,
        "micro_batch_size, recompute_granularity, tensor/pipeline/context parallel size, optimizer "
        "offload",
        "At least %s has to go from this GPU; no allocator setting can give that. `mbsim advise` "
        "orders such changes by what they cost.",
        known(missing) && missing > 0 ? base_bytes_format(missing, need) : "the missing part");
    say(&c->conflicts, "At a fixed number of GPUs a larger tensor or pipeline size lowers the data "
                       "parallel size: optimizer shards grow, so memory does not halve.");
    say(&c->conflicts,
        "CPU offload of activations does not work with pipeline parallelism above 1.");
}

static void advise_cap(diag_result_t *res, bool has_cache)
{
    diag_change_t *c = change(
        res,
        "torch.cuda.set_per_process_memory_fraction(0.95), or per_process_memory_fraction:0.95 in "
        "PYTORCH_CUDA_ALLOC_CONF (PyTorch 2.10 and later)",
        "The cache stops growing before it takes what libraries outside PyTorch need%s.",
        has_cache ? "; torch.cuda.empty_cache() before the first use of a communicator gives the "
                    "present cache back once"
                  : "");
    say(&c->conflicts, "A fraction that is too small turns the failure into an out-of-memory error "
                       "of PyTorch.");
    c = change(res, "NCCL_NVLS_ENABLE=0, smaller NCCL_BUFFSIZE, fewer channels (NCCL_MAX_CTAS)",
               "Each communicator takes less device memory.");
    say(&c->conflicts,
        "Collectives get slower; NVLS is only used on NVSwitch systems of Hopper and "
        "later.");
}

/* NCCL or another library could not get memory: the figures of PyTorch say why there was none. */
static void judge_library(const diag_log_t *log, diag_result_t *res)
{
    const bool is_nccl = res->failure->kind == DIAG_KIND_NCCL;
    const char *who = is_nccl ? "NCCL" : "a CUDA library or the CUDA runtime";
    (void)log;
    res->verdict = DIAG_VERDICT_OUTSIDE;
    if (known(res->request))
        say(&res->reasons, "The request that failed (%s) is of %s, not of PyTorch's allocator.",
            AMOUNT(res->request), who);
    else
        say(&res->reasons, "What failed is a request of %s, not of PyTorch's allocator.", who);
    bool has_cache = known(res->cached) && res->cached > 0;
    if (has_cache)
        say(&res->reasons,
            "PyTorch kept %s reserved but unallocated (allocated %s): memory that only PyTorch can "
            "use.",
            AMOUNT(res->cached), AMOUNT(res->allocated));
    if (known(res->free_bytes))
        say(&res->reasons, "Free on the device: %s.", AMOUNT(res->free_bytes));
    if (res->request == 512 * BASE_MIB && is_nccl)
        change(res, "NCCL_RUNTIME_CONNECT=1",
               "512 MiB (64 channels x 16 x 512 KiB) is the network buffer that every communicator "
               "takes at once, one of a single rank included, when connections are not made on "
               "first use (nccl#2363).");
    advise_cap(res, has_cache);
    if (!known(res->cached))
        say(&res->missing, "PyTorch's allocated and reserved memory at that time (Megatron's "
                           "memory line, memory_summary()).");
    if (!known(res->free_bytes))
        say(&res->missing, "Free memory on the device (nvidia-smi).");
}

/* Cached memory that the allocator setting would make usable. */
static uint64_t usable_cache(diag_result_t *res)
{
    uint64_t left = res->allocated / 1000 * EXPANDABLE_LEFT_PER_MILLE;
    res->predicted_cached = known(res->allocated) ? base_u64_min(left, res->cached) : DIAG_UNKNOWN;
    return less(res->cached, known(res->predicted_cached) ? res->predicted_cached : 0);
}

static void judge_outside(diag_result_t *res, uint64_t bytes, bool is_others)
{
    res->verdict = DIAG_VERDICT_OUTSIDE;
    res->predicted_cached = DIAG_UNKNOWN;
    if (is_others) {
        say(&res->reasons, "Other processes hold %s on this GPU; %s was missing.", AMOUNT(bytes),
            AMOUNT(res->shortfall));
        change(res, "end the other processes on this GPU (nvidia-smi lists them)",
               "They hold more than was missing.");
        return;
    }
    say(&res->reasons, "%s on the device are outside PyTorch's allocator%s; %s was missing.",
        AMOUNT(bytes), res->non_pytorch_has_others ? " (other processes may be in it)" : "",
        AMOUNT(res->shortfall));
    advise_cap(res, known(res->cached) && res->cached > res->shortfall);
}

static void judge_fragmentation(const diag_log_t *log, diag_result_t *res, uint64_t usable)
{
    bool is_on = strstr(log->conf, "expandable_segments:True") != NULL;
    res->verdict = DIAG_VERDICT_FRAGMENTATION;
    say(&res->reasons,
        "PyTorch held %s reserved but unallocated, %.1f times what was missing. Before it fails it "
        "gives back every wholly free segment, so these are holes beside blocks in use.",
        AMOUNT(res->cached),
        (double)res->cached / (double)(res->shortfall > 0 ? res->shortfall : 1));
    if (!is_on) {
        say(&res->reasons,
            "With expandable segments about %s of that would stay: %s more than was missing.",
            AMOUNT(known(res->predicted_cached) ? res->predicted_cached : 0),
            AMOUNT(usable - res->shortfall));
        advise_expandable(log, res);
    } else {
        res->predicted_cached = DIAG_UNKNOWN;
        say(&res->reasons, "expandable_segments:True is already set: what is left are holes within "
                           "pages of 2 and 20 MiB, or segments that hold blocks of other streams.");
        if (strstr(log->conf, "max_split_size_mb") != NULL)
            change(res, "remove max_split_size_mb from PYTORCH_CUDA_ALLOC_CONF",
                   "Together with expandable_segments it can let reserved memory grow without "
                   "bound on PyTorch 2.12 to 2.14 (pytorch#123548).");
        change(res, "TORCH_NCCL_AVOID_RECORD_STREAMS=1",
               "Tensors of communication become free when the main stream is done with them; "
               "newer PyTorch does so by default.");
        advise_smaller(res, res->shortfall);
    }
    if (known(res->total) && usable - res->shortfall < res->total / 50)
        say(&res->notes, "The device is nearly full all the same: less than 2 %% would be spare.");
}

static void judge_capacity(diag_result_t *res)
{
    res->verdict = DIAG_VERDICT_CAPACITY;
    res->predicted_cached = DIAG_UNKNOWN;
    if (known(res->cached))
        say(&res->reasons,
            "Reserved but unallocated are only %s: without any fragmentation %s would still be "
            "missing.",
            AMOUNT(res->cached), AMOUNT(less(res->shortfall, usable_cache(res))));
    res->predicted_cached = DIAG_UNKNOWN;
    advise_smaller(res, known(res->shortfall) ? res->shortfall : DIAG_UNKNOWN);
}

/* Nothing says how much of the used memory is PyTorch's cache. */
static void judge_without_cache(diag_result_t *res)
{
    uint64_t used = less(res->total, res->free_bytes);
    uint64_t most = less(less(used, res->allocated), CONTEXT_BYTES);
    if (known(most) && known(res->shortfall) && most < res->shortfall) {
        say(&res->reasons,
            "At most %s can be cached (used less allocated less a context of 512 MiB): less than "
            "what was missing.",
            AMOUNT(most));
        judge_capacity(res);
        return;
    }
    if (known(res->total) && known(res->allocated) && known(res->request) &&
        (res->allocated + res->request) / FULL_PERCENT >= res->total / 100) {
        say(&res->reasons,
            "Allocated and the request are %.1f %% of the device; context and communicators need "
            "most of the rest.",
            100.0 * (double)(res->allocated + res->request) / (double)res->total);
        judge_capacity(res);
        return;
    }
    say(&res->missing, "How much PyTorch had reserved: the whole out-of-memory message has it.");
}

/* There was room for the request by the figures, and the driver refused it all the same. */
static void judge_free_enough(diag_result_t *res)
{
    say(&res->reasons,
        "%s were free and %s were asked for: the driver needed more (segments are 2 or 20 MiB at "
        "least), or another process was quicker.",
        AMOUNT(res->free_bytes), AMOUNT(res->request));
    uint64_t room = known(res->total) ? res->total : res->free_bytes;
    if (!known(res->total) && known(res->allocated))
        room += res->allocated;
    if (known(res->allocated) && res->allocated / 9 >= room / 10) {
        say(&res->reasons,
            "Allocated are %s of %s%s: the device is full, and which request fails "
            "is chance.",
            AMOUNT(res->allocated), AMOUNT(room),
            known(res->total) ? "" : " (allocated and free together)");
        judge_capacity(res);
    }
}

static void judge_oom(const diag_log_t *log, diag_result_t *res)
{
    const uint64_t limit = res->failure->figures[DIAG_LIMIT];
    if (known(limit) && known(res->free_bytes) && known(res->request) &&
        res->free_bytes >= res->request) {
        say(&res->reasons,
            "The process may use %s (a memory fraction is set); the device itself "
            "had %s free.",
            AMOUNT(limit), AMOUNT(res->free_bytes));
        res->verdict = DIAG_VERDICT_CAPACITY;
        change(res,
               "a larger memory fraction (per_process_memory_fraction, "
               "set_per_process_memory_fraction)",
               "The limit is the process's own.");
        return;
    }
    if (!known(res->shortfall)) {
        say(&res->missing,
            "The numbers of the out-of-memory message: what was tried, what was free.");
        return;
    }
    if (res->shortfall == 0) {
        judge_free_enough(res);
        return;
    }
    say(&res->reasons, "%s was missing%s%s.", AMOUNT(res->shortfall),
        known(res->request) ? " for a request of " : "",
        known(res->request) ? AMOUNT(res->request) : "");
    bool has_much_outside = known(res->non_pytorch) && known(res->total) &&
                            res->non_pytorch > res->total / 100 * MUCH_OUTSIDE_PERCENT &&
                            res->non_pytorch > res->shortfall;
    bool has_others = known(res->others) && res->others > BASE_GIB && res->others > res->shortfall;
    uint64_t usable = known(res->cached) ? usable_cache(res) : 0;
    if (has_others && res->others > usable)
        judge_outside(res, res->others, true);
    else if (has_much_outside && res->non_pytorch > usable)
        judge_outside(res, res->non_pytorch, false);
    else if (!known(res->cached))
        judge_without_cache(res);
    else if (usable >= res->shortfall)
        judge_fragmentation(log, res, usable);
    else
        judge_capacity(res);
    if (known(res->total) && known(res->request) && res->request > res->total / 10)
        say(&res->notes,
            "One request of %s is %.0f %% of the device: look first at what makes it (logits, an "
            "unsharded gather, a full-size copy).",
            AMOUNT(res->request), 100.0 * (double)res->request / (double)res->total);
    if (known(res->pools) && res->pools > 0)
        say(&res->notes,
            "%s are idle in private pools (CUDA graphs); PyTorch's text counts them as allocated, "
            "and only their graphs can use them.",
            AMOUNT(res->pools));
}

static void judge_no_failure(const diag_log_t *log, diag_result_t *res)
{
    if (log->n_records == 0)
        say(&res->missing, "Anything about memory: no line of the text was recognised.");
    else
        say(&res->missing,
            "The failure itself: PyTorch's out-of-memory message, or NCCL's warning.");
    if (!known(res->total))
        say(&res->missing, "The size of the device.");
    if (res->peak == NULL)
        return;
    const uint64_t *f = res->peak->figures;
    uint64_t gap = less(f[DIAG_MAX_RESERVED], f[DIAG_MAX_ALLOCATED]);
    uint64_t reserved = f[DIAG_MAX_RESERVED];
    if (!known(gap)) {
        gap = f[DIAG_CACHED];
        reserved = f[DIAG_RESERVED];
    }
    if (known(gap) && known(reserved) && gap > reserved / 10)
        say(&res->notes,
            "Reserved is %s above allocated (%.0f %% of it): at risk by fragmentation when memory "
            "gets tight; expandable_segments:True keeps that gap small.",
            AMOUNT(gap), 100.0 * (double)gap / (double)reserved);
    if (known(res->total) && known(f[DIAG_MAX_RESERVED]))
        say(&res->notes, "Peak reserved %s is %.1f %% of the device.", AMOUNT(f[DIAG_MAX_RESERVED]),
            100.0 * (double)f[DIAG_MAX_RESERVED] / (double)res->total);
}

/* How far apart the ranks are: the rank with the peak may not be the one that people look at. */
static void note_spread(const diag_log_t *log, diag_result_t *res)
{
    const diag_record_t *low = NULL;
    if (res->peak == NULL || res->peak->rank < 0)
        return;
    for (size_t i = 0; i < log->n_records; i++) {
        const diag_record_t *rec = &log->records[i];
        if (is_memory_line(rec) && rec->rank >= 0 && rec->iteration == res->peak->iteration &&
            rec->rank != res->peak->rank && (low == NULL || peak_of(rec) < peak_of(low)))
            low = rec;
    }
    if (low != NULL && peak_of(low) < peak_of(res->peak))
        say(&res->notes, "Rank %lld has the highest peak, %s; rank %lld the lowest, %s.",
            (long long)res->peak->rank, AMOUNT(peak_of(res->peak)), (long long)low->rank,
            AMOUNT(peak_of(low)));
}

/* How the peak of one rank grew in the log. */
static void note_growth(const diag_log_t *log, diag_result_t *res)
{
    const diag_record_t *first = NULL, *last = NULL;
    if (res->peak == NULL || res->peak->kind == DIAG_KIND_NOTE || res->peak->kind == DIAG_KIND_SMI)
        return;
    for (size_t i = 0; i < log->n_records; i++) {
        const diag_record_t *rec = &log->records[i];
        if (rec->kind != res->peak->kind || rec->rank != res->peak->rank || peak_of(rec) == 0)
            continue;
        if (first == NULL)
            first = rec;
        last = rec;
    }
    if (first == last || peak_of(last) / 51 <= peak_of(first) / 50)
        return;
    bool is_second = first->iteration == 1 && last->iteration == 2;
    say(&res->notes, "The peak grew from %s (line %zu) to %s (line %zu)%s.", AMOUNT(peak_of(first)),
        first->line, AMOUNT(peak_of(last)), last->line,
        is_second ? ": Adam's moments are made in the first optimizer step, so that the second "
                    "iteration needs more"
                  : "");
}

/* What the log says besides: Megatron's own prediction, and what NCCL took. */
static void note_extras(const diag_log_t *log, diag_result_t *res)
{
    const diag_record_t *theory = NULL, *nccl = NULL;
    for (size_t i = 0; i < log->n_records; i++) {
        const diag_record_t *rec = &log->records[i];
        if (rec->kind == DIAG_KIND_THEORY && known(rec->figures[DIAG_PREDICTED]))
            theory = rec;
        if (rec->kind == DIAG_KIND_NCCL_USE &&
            (nccl == NULL || rec->figures[DIAG_NCCL] > nccl->figures[DIAG_NCCL]))
            nccl = rec;
    }
    if (nccl != NULL)
        say(&res->notes,
            "NCCL allocated %s on GPU %lld, as its log shows (line %zu on): part of "
            "what is not PyTorch's.",
            AMOUNT(nccl->figures[DIAG_NCCL]), (long long)nccl->gpu, nccl->line);
    if (theory == NULL)
        return;
    uint64_t predicted = theory->figures[DIAG_PREDICTED];
    uint64_t measured = res->peak != NULL ? res->peak->figures[DIAG_MAX_ALLOCATED] : DIAG_UNKNOWN;
    if (known(measured) && predicted > 0)
        say(&res->notes,
            "Megatron's formula says %s (line %zu); measured is a peak of %s, %.0f %% "
            "of it.",
            AMOUNT(predicted), theory->line, AMOUNT(measured),
            100.0 * (double)measured / (double)predicted);
    else
        say(&res->notes,
            "Megatron's formula says %s (line %zu): without temporary buffers, "
            "communicators, fragmentation and what the formula does not know.",
            AMOUNT(predicted), theory->line);
}

static void note_settings(const diag_log_t *log, diag_result_t *res)
{
    if (strstr(log->conf, "expandable_segments:True") != NULL &&
        strstr(log->conf, "max_split_size_mb") != NULL)
        say(&res->notes, "The allocator settings combine expandable_segments and "
                         "max_split_size_mb: on PyTorch 2.12 to 2.14 reserved memory can then grow "
                         "without bound (pytorch#123548).");
}

void diag_judge(const diag_log_t *log, diag_result_t *res)
{
    memset(res, 0, sizeof(*res));
    res->verdict = DIAG_VERDICT_UNKNOWN;
    res->total = res->allocated = res->cached = res->pools = res->non_pytorch = res->others =
        res->free_bytes = res->unaccounted = res->request = res->shortfall = res->predicted_cached =
            DIAG_UNKNOWN;
    find_subjects(log, res);
    const diag_record_t *subject = res->failure != NULL ? res->failure : res->peak;
    uint64_t f[DIAG_N_FIGURES];
    for (size_t i = 0; i < DIAG_N_FIGURES; i++)
        f[i] = subject != NULL ? subject->figures[i] : DIAG_UNKNOWN;
    if (res->failure != NULL)
        fill_from(res, f, memory_line_for(log, res->failure));
    fill_total(log, f, subject != NULL ? subject->gpu : -1);
    split(res, f);
    if (res->failure == NULL)
        judge_no_failure(log, res);
    else if (res->failure->kind == DIAG_KIND_NCCL || res->failure->kind == DIAG_KIND_CUDA)
        judge_library(log, res);
    else
        judge_oom(log, res);
    note_spread(log, res);
    note_growth(log, res);
    note_extras(log, res);
    note_settings(log, res);
}
