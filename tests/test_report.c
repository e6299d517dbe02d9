/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/report/moment.h"
#include "sim/report/rank_list.h"
#include "sim/report/report.h"
#include "tests/cutap.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const fitting =
    "model.preset=llama3.2-1b parallel.world_size=16 parallel.tensor_model_parallel_size=2 "
    "parallel.pipeline_model_parallel_size=4 parallel.virtual_pipeline_model_parallel_size=2 "
    "train.global_batch_size=8 optimizer.use_distributed_optimizer=true "
    "device.reserved_outside_bytes=1GiB";
/* Parameters, gradients and optimizer state alone are more than there is. */
static const char *const too_large =
    "model.preset=llama3-8b parallel.world_size=8 parallel.pipeline_model_parallel_size=2 "
    "train.global_batch_size=8 device.memory_bytes=40GiB";

typedef struct {
    sim_scenario_t scenario;
    sim_job_t job;
    sim_report_t report;
} played_t;

static bool set_all(sim_scenario_t *s, const char *settings, base_diag_t *diag)
{
    static const char *const common = "precision.bf16=true device.gpu=h100-80gb-sxm "
                                      "train.micro_batch_size=1 train.seq_length=1024";
    const char *const parts[] = { common, settings };
    for (int i = 0; i < 2; i++) {
        char *text = strdup(parts[i]), *rest = text;
        bool ok = true;
        for (char *word; ok && (word = strsep(&rest, " ")) != NULL;)
            ok = sim_scenario_set_text(s, word, "test", diag);
        free(text);
        if (!ok)
            return false;
    }
    return sim_scenario_resolve(s, diag);
}

static bool play(played_t *p, const char *settings)
{
    base_diag_t diag;
    base_err_t err;
    base_diag_init(&diag);
    sim_scenario_init(&p->scenario);
    bool ok = set_all(&p->scenario, settings, &diag);
    if (!ok)
        printf("# %s: %s\n", settings, diag.n > 0 ? diag.text[0] : "?");
    base_diag_fini(&diag);
    return ok && sim_job_play(&p->scenario, NULL, &p->job, &err) == BASE_OK &&
           sim_report_init(&p->report, &p->scenario, &p->job, "test.ini", NULL, &err) == BASE_OK;
}

static void release(played_t *p)
{
    sim_report_fini(&p->report);
    sim_job_fini(&p->job);
    sim_scenario_fini(&p->scenario);
}

static uint64_t get(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    CU_ASSERT_TRUE(json_is_integer(value));
    return (uint64_t)json_integer_value(value);
}

static uint64_t sum(const json_t *object)
{
    uint64_t total = 0;
    void *at = json_object_iter((json_t *)object);
    for (; at != NULL; at = json_object_iter_next((json_t *)object, at))
        total += (uint64_t)json_integer_value(json_object_iter_value(at));
    return total;
}

static void check_rank(const json_t *rank, const sim_scenario_t *s)
{
    const json_t *ledger = json_object_get(rank, "ledger");
    uint64_t allocated = get(ledger, "allocated_bytes"), reserved = get(ledger, "reserved_bytes");
    uint64_t used = get(ledger, "device_used_bytes");
    CU_ASSERT_EQUAL(sum(json_object_get(ledger, "categories")), allocated);
    CU_ASSERT_EQUAL(sum(json_object_get(ledger, "modules")), allocated);
    CU_ASSERT_EQUAL(allocated + get(ledger, "cached_bytes"), reserved);
    CU_ASSERT_EQUAL(sum(json_object_get(ledger, "outside")), get(ledger, "outside_bytes"));
    CU_ASSERT_EQUAL(get(ledger, "outside_bytes") + reserved, used);
    CU_ASSERT_EQUAL(used + get(ledger, "headroom_bytes"), get(ledger, "total_bytes"));
    CU_ASSERT_EQUAL(get(ledger, "total_bytes"), s->memory_bytes);
    CU_ASSERT_EQUAL(get(rank, "max_allocated_bytes"), allocated);
    CU_ASSERT_EQUAL(get(rank, "max_reserved_bytes"), reserved);
    CU_ASSERT_EQUAL(get(rank, "device_used_bytes"), used);
    CU_ASSERT_TRUE(get(json_object_get(rank, "allocated_moment"), "iteration") <= s->iterations);
}

static void the_ledger_adds_up_on_every_rank(void)
{
    const char *const cases[] = { fitting, too_large };
    for (int i = 0; i < 2; i++) {
        played_t p;
        CU_ASSERT_TRUE_FATAL(play(&p, cases[i]));
        json_t *root = sim_report_json(&p.report), *ranks = json_object_get(root, "ranks");
        CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(root, "schema")),
                               "mbsim.report/1");
        CU_ASSERT_EQUAL_FATAL(json_array_size(ranks), p.scenario.world_size);
        for (size_t rank = 0; rank < json_array_size(ranks); rank++) {
            CU_ASSERT_EQUAL(get(json_array_get(ranks, rank), "rank"), rank);
            check_rank(json_array_get(ranks, rank), &p.scenario);
        }
        json_decref(root);
        release(&p);
    }
}

static void the_scenario_is_in_the_json_as_resolved(void)
{
    played_t p;
    CU_ASSERT_TRUE_FATAL(play(&p, fitting));
    json_t *root = sim_report_json(&p.report), *s = json_object_get(root, "scenario");
    json_t *parallel = json_object_get(s, "parallel"), *precision = json_object_get(s, "precision");
    CU_ASSERT_EQUAL(get(parallel, "pipeline_model_parallel_size"), 4);
    CU_ASSERT_EQUAL(get(json_object_get(s, "model"), "num_layers"), 16);
    CU_ASSERT_EQUAL(get(json_object_get(s, "device"), "reserved_outside_bytes"), UINT64_C(1) << 30);
    CU_ASSERT_TRUE(json_is_true(json_object_get(precision, "bf16")));
    CU_ASSERT_STRING_EQUAL(json_string_value(json_object_get(json_object_get(s, "device"), "gpu")),
                           "h100-80gb-sxm");
    json_decref(root);
    release(&p);
}

static void the_worst_rank_has_the_least_headroom(void)
{
    played_t p;
    CU_ASSERT_TRUE_FATAL(play(&p, fitting));
    const sim_verdict_t *v = &p.report.verdict;
    CU_ASSERT_EQUAL(v->n_out_of_memory, 0);
    uint64_t least = UINT64_MAX;
    for (uint32_t rank = 0; rank < p.job.classes.n_ranks; rank++) {
        uint64_t room = sim_report_ledger(&p.report, sim_job_result(&p.job, rank)).headroom_bytes;
        if (room < least) {
            least = room;
            CU_ASSERT_TRUE(rank <= v->worst_rank);
        }
    }
    CU_ASSERT_EQUAL(v->headroom_bytes, least);
    CU_ASSERT_EQUAL(p.report.worst.rank, v->worst_rank);
    release(&p);
}

static void a_job_that_is_too_large_lacks_capacity(void)
{
    played_t p;
    CU_ASSERT_TRUE_FATAL(play(&p, too_large));
    const sim_verdict_t *v = &p.report.verdict;
    CU_ASSERT_EQUAL(v->n_out_of_memory, 8);
    CU_ASSERT_EQUAL(v->cause, SIM_CAUSE_CAPACITY);
    CU_ASSERT_EQUAL(v->fits_expandable, SIM_ANSWER_NO);
    CU_ASSERT_TRUE(v->need_is_known && v->needed_allocated_bytes > p.report.usable_bytes);
    CU_ASSERT_EQUAL(v->misses_by_bytes, v->needed_reserved_bytes - p.report.usable_bytes);
    /* It misses by what it misses by: with that much more it fits. */
    char enough[300];
    snprintf(enough, sizeof(enough), "%s device.memory_bytes=%" PRIu64, too_large,
             p.scenario.memory_bytes + v->misses_by_bytes);
    const sim_rank_result_t *w = &p.report.worst;
    CU_ASSERT_EQUAL(sim_holders_total(&w->at_oom), w->oom.allocated_bytes);
    CU_ASSERT_TRUE(w->oom.device_free_bytes < w->oom.requested_bytes);
    release(&p);
    CU_ASSERT_TRUE_FATAL(play(&p, enough));
    CU_ASSERT_EQUAL(p.report.verdict.n_out_of_memory, 0);
    release(&p);
}

/* Between what the tensors take and what the default allocator reserves for them. */
static void a_job_can_fit_with_expandable_segments_only(void)
{
    played_t p;
    static const char *const base = "model.preset=gpt3-1.3b parallel.world_size=4 "
                                    "parallel.tensor_model_parallel_size=2 "
                                    "parallel.pipeline_model_parallel_size=2 "
                                    "train.global_batch_size=32 train.seq_length=2048 "
                                    "device.estimate_outside=false";
    CU_ASSERT_TRUE_FATAL(play(&p, base));
    uint64_t reserved_bytes = p.report.worst.max_reserved_bytes;
    release(&p);
    char settings[400];
    snprintf(settings, sizeof(settings), "%s allocator.conf=expandable_segments:True", base);
    CU_ASSERT_TRUE_FATAL(play(&p, settings));
    uint64_t expandable_bytes = 0;
    for (uint32_t c = 0; c < p.job.classes.n_classes; c++) {
        uint64_t bytes = p.job.results[c].max_reserved_bytes;
        expandable_bytes = bytes > expandable_bytes ? bytes : expandable_bytes;
    }
    release(&p);
    CU_ASSERT_TRUE_FATAL(expandable_bytes < reserved_bytes);
    snprintf(settings, sizeof(settings), "%s device.memory_bytes=%" PRIu64, base, expandable_bytes);
    CU_ASSERT_TRUE_FATAL(play(&p, settings));
    const sim_verdict_t *v = &p.report.verdict;
    if (v->n_out_of_memory > 0) {
        CU_ASSERT_EQUAL(v->cause, SIM_CAUSE_FRAGMENTATION);
        CU_ASSERT_EQUAL(v->fits_expandable, SIM_ANSWER_YES);
        CU_ASSERT_TRUE(v->expandable_reserved_bytes <= expandable_bytes);
    } else {
        /* Retries can save it: the allocator gives its cache back and goes on. */
        CU_ASSERT_TRUE(p.report.worst.n_alloc_retries > 0);
    }
    release(&p);
}

static char *text_of(const sim_report_t *report)
{
    char *text;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    sim_report_text(report, out);
    fclose(out);
    return text;
}

static void no_line_is_longer_than_100_columns(void)
{
    static const char *const cases[] = {
        "model.preset=llama3-405b parallel.world_size=1536 parallel.tensor_model_parallel_size=8 "
        "parallel.pipeline_model_parallel_size=6 train.global_batch_size=1024 "
        "parallel.use_tp_pp_dp_mapping=true optimizer.use_distributed_optimizer=true",
        "model.preset=gpt3-125m parallel.world_size=1 train.global_batch_size=1",
        "model.preset=llama3-70b parallel.world_size=128 parallel.pipeline_model_parallel_size=8 "
        "parallel.virtual_pipeline_model_parallel_size=10 train.global_batch_size=512 "
        "optimizer.use_distributed_optimizer=true",
    };
    const char *const all[] = { fitting, too_large, cases[0], cases[1], cases[2] };
    for (int i = 0; i < 5; i++) {
        played_t p;
        CU_ASSERT_TRUE_FATAL(play(&p, all[i]));
        char *text = text_of(&p.report), *rest = text;
        for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
            if (strlen(line) > 100)
                printf("# %zu columns: %s\n", strlen(line), line);
            CU_ASSERT_TRUE(strlen(line) <= 100);
        }
        free(text);
        release(&p);
    }
}

static void equal_lines_are_folded(void)
{
    played_t p;
    CU_ASSERT_TRUE_FATAL(play(&p, fitting));
    char *text = text_of(&p.report);
    /* All ranks of the first stage. */
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "\nranks place"));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "\n0-3 "));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "FITS with "));
    CU_ASSERT_PTR_NULL(strstr(text, "OUT OF MEMORY"));
    free(text);
    release(&p);
    CU_ASSERT_TRUE_FATAL(play(&p, too_large));
    text = text_of(&p.report);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "OUT OF MEMORY on 8 ranks: 0-7\n"));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "Capacity: "));
    CU_ASSERT_PTR_NULL(strstr(text, "FITS"));
    free(text);
    release(&p);
}

static void csv_has_the_numbers_of_the_json(void)
{
    played_t p;
    CU_ASSERT_TRUE_FATAL(play(&p, fitting));
    char *text;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    sim_report_csv(&p.report, out);
    fclose(out);
    char *rest = text, *head = strsep(&rest, "\n");
    size_t n_columns = 1, n_lines = 0;
    for (const char *c = head; *c != '\0'; c++)
        n_columns += *c == ',';
    for (char *line; (line = strsep(&rest, "\n")) != NULL && *line != '\0'; n_lines++) {
        char start[80];
        const sim_rank_result_t *r = sim_job_result(&p.job, (uint32_t)n_lines);
        size_t n_cells = 1;
        for (const char *c = line; *c != '\0'; c++)
            n_cells += *c == ',';
        CU_ASSERT_EQUAL(n_cells, n_columns);
        snprintf(start, sizeof(start), ",%" PRIu64 ",%" PRIu64 ",", r->max_allocated_bytes,
                 r->max_reserved_bytes);
        CU_ASSERT_PTR_NOT_NULL(strstr(line, start));
    }
    CU_ASSERT_EQUAL(n_lines, 16);
    free(text);
    release(&p);
}

static void rank_lists_are_short(void)
{
    static const struct {
        const char *set, *text;
    } cases[] = { { "1", "0" },
                  { "0000", "" },
                  { "0110", "1,2" },
                  { "11110111", "0-3,5-7" },
                  { "1010101", "0,2,4,6" } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bool is_in[8];
        uint32_t n = (uint32_t)strlen(cases[i].set);
        for (uint32_t k = 0; k < n; k++)
            is_in[k] = cases[i].set[k] == '1';
        char buf[40];
        CU_ASSERT_STRING_EQUAL(sim_rank_list_format(is_in, n, buf, sizeof(buf)), cases[i].text);
    }
    bool odd[1000] = { 0 };
    for (uint32_t k = 1; k < 1000; k += 2)
        odd[k] = true;
    char buf[20];
    CU_ASSERT_STRING_EQUAL(sim_rank_list_format(odd, 1000, buf, sizeof(buf)), "1,3,5,7,9,11,13,..");
}

static void moments_read_well(void)
{
    char buf[SIM_MOMENT_TEXT];
    sim_moment_t m = { .iteration = 2,
                       .microbatch = 3,
                       .chunk = 1,
                       .layer = 17,
                       .phase = SIM_PHASE_FORWARD,
                       .module = SIM_MOD_FC1 };
    CU_ASSERT_STRING_EQUAL(sim_moment_words(&m, true, buf),
                           "iteration 2, forward of micro-batch 3, chunk 1, layer 17, fc1");
    CU_ASSERT_STRING_EQUAL(sim_moment_short(&m, true, buf), "i2 fwd m3 c1 l17 fc1");
    CU_ASSERT_STRING_EQUAL(sim_moment_short(&m, false, buf), "i2 fwd m3 l17 fc1");
    m = (sim_moment_t){ .layer = SIM_NO_LAYER, .phase = SIM_PHASE_DDP_WRAP, .module = SIM_MOD_DDP };
    CU_ASSERT_STRING_EQUAL(sim_moment_words(&m, false, buf), "ddp wrap, ddp");
}

#define EXPERTS                                                                                    \
    "model.num_layers=4 model.hidden_size=512 model.num_attention_heads=8 model.vocab_size=1024 "  \
    "moe.num_experts=8 moe.moe_router_topk=2 moe.moe_ffn_hidden_size=1024 "                        \
    "train.global_batch_size=8 parallel.world_size=4"

static json_t *report_json(const char *settings)
{
    played_t p;
    CU_ASSERT_TRUE_FATAL(play(&p, settings));
    json_t *root = sim_report_json(&p.report);
    release(&p);
    return root;
}

static uint64_t max_allocated(const json_t *routing, const char *name)
{
    return get(json_object_get(routing, name), "max_allocated_bytes");
}

static void uneven_routing_is_tried(void)
{
    played_t p;
    CU_ASSERT_TRUE_FATAL(play(&p, EXPERTS " parallel.expert_model_parallel_size=4"));
    json_t *root = sim_report_json(&p.report), *routing = json_object_get(root, "routing");
    CU_ASSERT_EQUAL(max_allocated(routing, "low"), p.report.worst.max_allocated_bytes);
    CU_ASSERT_TRUE(max_allocated(routing, "low") < max_allocated(routing, "likely"));
    CU_ASSERT_TRUE(max_allocated(routing, "likely") < max_allocated(routing, "high"));
    uint64_t high = max_allocated(routing, "high");
    json_decref(root);
    release(&p);
    /* The scenario says so itself: the same peak, and no other cases. */
    CU_ASSERT_TRUE_FATAL(play(&p, EXPERTS " parallel.expert_model_parallel_size=4 "
                                          "moe.moe_imbalance=1.4"));
    CU_ASSERT_EQUAL(p.report.worst.max_allocated_bytes, high);
    CU_ASSERT_FALSE(p.report.has_routing);
    release(&p);
}

/* Without experts, with all of them on every rank, and where each gets as much as it can hold. */
static void routing_that_cannot_be_uneven_is_not_tried(void)
{
    const char *const cases[] = {
        fitting, EXPERTS,
        EXPERTS " parallel.expert_model_parallel_size=4 "
                "moe.moe_token_dispatcher_type=alltoall moe.moe_expert_capacity_factor=1 "
                "moe.moe_pad_expert_input_to_capacity=true"
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        json_t *root = report_json(cases[i]);
        CU_ASSERT_PTR_NULL(json_object_get(root, "routing"));
        json_decref(root);
    }
}

/* Two experts of two ranks: nobody can get more than the even share. */
static void a_rank_gets_no_more_than_all_tokens(void)
{
    json_t *root = report_json("model.num_layers=4 model.hidden_size=512 "
                               "model.num_attention_heads=8 model.vocab_size=1024 "
                               "moe.num_experts=2 moe.moe_router_topk=2 "
                               "train.global_batch_size=8 parallel.world_size=4 "
                               "parallel.expert_model_parallel_size=2");
    json_t *routing = json_object_get(root, "routing");
    CU_ASSERT_EQUAL(max_allocated(routing, "low"), max_allocated(routing, "high"));
    json_decref(root);
}

int main(void)
{
    CU_TestInfo tests[] = {
        { "the ledger adds up on every rank", the_ledger_adds_up_on_every_rank },
        { "the scenario is in the JSON as resolved", the_scenario_is_in_the_json_as_resolved },
        { "the worst rank has the least headroom", the_worst_rank_has_the_least_headroom },
        { "a job that is too large lacks capacity", a_job_that_is_too_large_lacks_capacity },
        { "a job can fit with expandable segments only",
          a_job_can_fit_with_expandable_segments_only },
        { "no line is longer than 100 columns", no_line_is_longer_than_100_columns },
        { "equal lines are folded", equal_lines_are_folded },
        { "CSV has the numbers of the JSON", csv_has_the_numbers_of_the_json },
        { "rank lists are short", rank_lists_are_short },
        { "moments read well", moments_read_well },
        { "uneven routing is tried", uneven_routing_is_tried },
        { "routing that cannot be uneven is not tried",
          routing_that_cannot_be_uneven_is_not_tried },
        { "a rank gets no more than all tokens", a_rank_gets_no_more_than_all_tokens },
        CU_TEST_INFO_NULL,
    };
    CU_SuiteInfo suites[] = { { "report", NULL, NULL, NULL, NULL, tests }, CU_SUITE_INFO_NULL };
    return cutap_run(suites);
}
