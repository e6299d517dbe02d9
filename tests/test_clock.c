/* SPDX-License-Identifier: Apache-2.0
 * The time estimate: what has to hold for every job, and the order of published runs. */
#include "config.h"

#include "sim/engine/clock.h"
#include "tests/cutap.h"
#include "tests/random_scenario.h"
#include "tests/settings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_SEEDS = 300 };

static void foreach_job(void (*examine)(const sim_scenario_t *s, const sim_step_time_t *t))
{
    unsigned n = 0;
    for (uint64_t seed = 1; seed <= N_SEEDS; seed++) {
        sim_scenario_t s;
        if (!random_scenario(&s, seed))
            continue;
        sim_step_time_t t;
        base_err_t err;
        base_status_t status = sim_clock_step(&s, true, &t, &err);
        CU_ASSERT_EQUAL(status, BASE_OK);
        if (status == BASE_OK) {
            examine(&s, &t);
            n++;
        } else {
            printf("# seed %u: %s\n", (unsigned)seed, err.text);
        }
        sim_step_time_fini(&t);
        sim_scenario_fini(&s);
    }
    CU_ASSERT_TRUE(n > N_SEEDS / 4);
}

static void check_sums(const sim_scenario_t *s, const sim_step_time_t *t)
{
    (void)s;
    CU_ASSERT_TRUE(t->step_ns > 0);
    CU_ASSERT_EQUAL(t->compute_ns + t->exposed_comm_ns + t->launch_ns + t->grad_sync_ns +
                        t->optimizer_ns + t->param_gather_ns + t->bubble_ns,
                    t->step_ns);
    CU_ASSERT_TRUE(t->bubble_ns < t->step_ns);
    CU_ASSERT_TRUE(t->mfu > 0 && t->mfu < 1);
}

static void parts_add_up(void)
{
    foreach_job(check_sums);
}

static void check_spans(const sim_scenario_t *s, const sim_step_time_t *t)
{
    uint64_t n_passes[2] = { 0 }, n_weight_grads = 0;
    for (size_t i = 0; i < t->n_spans; i++) {
        const sim_span_t *span = &t->spans[i];
        CU_ASSERT_TRUE(span->begin_ns < span->end_ns && span->end_ns <= t->step_ns);
        if (i > 0 && span[-1].pp_rank == span->pp_rank)
            CU_ASSERT_TRUE(span[-1].end_ns <= span->begin_ns);
        if (span->kind == SIM_SPAN_FORWARD || span->kind == SIM_SPAN_BACKWARD)
            n_passes[span->kind == SIM_SPAN_BACKWARD]++;
        n_weight_grads += span->kind == SIM_SPAN_WEIGHT_GRAD;
    }
    uint64_t expected =
        s->n_microbatches * topo_n_stages(s->stages.placement, s->stages.pp, s->stages.vpp);
    CU_ASSERT_EQUAL(n_passes[0], expected);
    CU_ASSERT_EQUAL(n_passes[1], expected);
    bool splits = sim_schedule_splits(s->pipeline_schedule);
    bool splits_some = s->pipeline_schedule == SIM_SCHEDULE_DUALPIPE ||
                       s->pipeline_schedule == SIM_SCHEDULE_DUALPIPEV;
    CU_ASSERT_TRUE(splits_some ? n_weight_grads > 0 && n_weight_grads < expected
                               : n_weight_grads == (splits ? expected : 0));
}

static void every_pass_has_its_span(void)
{
    foreach_job(check_spans);
}

static void check_arrows(const sim_scenario_t *s, const sim_step_time_t *t)
{
    /* Both ways between stages that follow each other, but for two on the same rank. */
    uint64_t borders = topo_n_stages(s->stages.placement, s->stages.pp, s->stages.vpp) - 1 -
                       (s->stages.placement == TOPO_PLACEMENT_V);
    CU_ASSERT_EQUAL(t->n_arrows, s->stages.pp > 1 ? 2 * borders * s->n_microbatches : 0);
    for (size_t i = 0; i < t->n_arrows; i++) {
        const sim_arrow_t *arrow = &t->arrows[i];
        CU_ASSERT_TRUE(arrow->sent_ns < arrow->arrived_ns);
        CU_ASSERT_TRUE(arrow->arrived_ns < t->step_ns);
        if (i > 0)
            CU_ASSERT_TRUE(arrow[-1].arrived_ns <= arrow->arrived_ns);
    }
}

static void every_message_has_its_arrow(void)
{
    foreach_job(check_arrows);
}

/* ---- named jobs ---- */

/* "key=value key=value ..." on top of a GPT on 32 H100. */
static sim_step_time_t time_of(const char *base, const char *settings)
{
    sim_scenario_t s;
    sim_step_time_t t = { 0 };
    base_err_t err;
    settings_accepted(&s, base, settings);
    CU_ASSERT_EQUAL_FATAL(sim_clock_step(&s, false, &t, &err), BASE_OK);
    sim_scenario_fini(&s);
    return t;
}

/* Of a GPU, in 10^12 a second. */
static double flops_of(const char *base, const char *settings)
{
    return time_of(base, settings).tflops_per_s;
}

static const char llama3_70b[] =
    "preset=llama3-70b world_size=32 sequence_parallel=true micro_batch_size=1 "
    "global_batch_size=32 seq_length=4096 use_distributed_optimizer=true gpu=h100-80gb-sxm "
    "fp8=hybrid fp8_recipe=tensorwise fp8_param_gather=true cross_entropy_loss_fusion=true "
    "overlap_grad_reduce=true overlap_param_gather=true overlap_p2p_communication=true "
    "tp_comm_overlap=true accumulate_allreduce_grads_in_fp32=false "
    "recompute_granularity=selective recompute_modules=core_attn tensor_model_parallel_size=4 "
    "pipeline_model_parallel_size=4 virtual_pipeline_model_parallel_size=5";

/* Megatron-Bridge's notes on tuning memory (skills/nemo-mbridge-perf-memory-tuning): Llama-3 70B,
 * FP8 with current scaling, 32 H100, with its recipe's overlap of tensor-parallel messages. 704
 * TFLOP/s a GPU; eight stages cost 5 %, eight tensor-parallel ranks 28 %, mlp recompute 16 %. */
static void published_layouts(void)
{
    double base = flops_of(llama3_70b, "");
    double pp8 = 1 - flops_of(llama3_70b, "pipeline_model_parallel_size=8") / base;
    double tp8 = 1 - flops_of(llama3_70b, "tensor_model_parallel_size=8") / base;
    double mlp = 1 - flops_of(llama3_70b, "recompute_modules=mlp") / base;
    printf("# %.0f TFLOP/s; loss: 8 stages %.1f %%, 8 tensor-parallel ranks %.1f %%, mlp %.1f %%\n",
           base, 100 * pp8, 100 * tp8, 100 * mlp);
    CU_ASSERT_TRUE(fabs(base / 704 - 1) < 0.1);
    CU_ASSERT_TRUE(pp8 < mlp && mlp < tp8);
    CU_ASSERT_TRUE(pp8 > 0.03 && pp8 < 0.09);
    CU_ASSERT_TRUE(fabs(tp8 / 0.28 - 1) < 1.0 / 3);
    CU_ASSERT_TRUE(fabs(mlp / 0.16 - 1) < 1.0 / 3);
}
/* Equal stages that wait for nothing but each other: (p - 1) / (m + p - 1) of the passes. */
static void bubble_shrinks_with_micro_batches(void)
{
    static const char small[] =
        "preset=llama2-7b world_size=4 pipeline_model_parallel_size=4 micro_batch_size=1 "
        "seq_length=2048 use_distributed_optimizer=true gpu=h100-80gb-sxm num_layers=32 "
        "host_us_per_layer=10 "
        "vocab_size=1024 max_position_embeddings=2048";
    sim_step_time_t few = time_of(small, "global_batch_size=8");
    sim_step_time_t many = time_of(small, "global_batch_size=32");
    sim_step_time_t interleaved =
        time_of(small, "global_batch_size=8 virtual_pipeline_model_parallel_size=4");
    double passes = (double)few.compute_ns + (double)few.exposed_comm_ns;
    double ideal = passes * 3 / 8;
    CU_ASSERT_TRUE(fabs((double)few.bubble_ns / ideal - 1) < 0.15);
    CU_ASSERT_TRUE(many.bubble_fraction < few.bubble_fraction / 2);
    CU_ASSERT_TRUE(interleaved.bubble_fraction < few.bubble_fraction / 2);
}

/* Equal stages, passes of about equal length: on top of its work 1F1B stands still for
 * (p - 1) (F + B + W) and ZB-H1 for (p - 1) (F + B - W) (Zero Bubble, section 2); the V shapes are
 * published in this order, and DualPipe, whose ranks have twice the parameters, below them. */
static void split_schedules_stand_still_for_less(void)
{
    static const char small[] =
        "preset=llama2-7b world_size=8 pipeline_model_parallel_size=8 micro_batch_size=1 "
        "seq_length=2048 gpu=h100-80gb-sxm num_layers=64 vocab_size=1024 global_batch_size=32 "
        "max_position_embeddings=2048 nic_gbit_per_s=400 host_us_per_layer=10";
    sim_step_time_t plain = time_of(small, "");
    sim_step_time_t zb_h1 = time_of(small, "pipeline_schedule=zb-h1");
    sim_step_time_t zbv = time_of(small, "pipeline_schedule=zbv");
    sim_step_time_t half = time_of(small, "pipeline_schedule=v-half");
    sim_step_time_t min = time_of(small, "pipeline_schedule=v-min");
    sim_step_time_t dualpipe = time_of(small, "pipeline_schedule=dualpipe");
    double ratio = (double)zb_h1.bubble_ns / (double)plain.bubble_ns;
    printf("# bubbles: 1f1b %.1f %%, zb-h1 %.1f %%, zbv %.1f %%, v-half %.1f %%, v-min %.1f %%, "
           "dualpipe %.1f %%\n",
           100 * plain.bubble_fraction, 100 * zb_h1.bubble_fraction, 100 * zbv.bubble_fraction,
           100 * half.bubble_fraction, 100 * min.bubble_fraction, 100 * dualpipe.bubble_fraction);
    CU_ASSERT_TRUE(ratio > 0.25 && ratio < 0.55);
    CU_ASSERT_TRUE(zbv.bubble_ns < zb_h1.bubble_ns);
    CU_ASSERT_TRUE(zbv.bubble_ns < half.bubble_ns && half.bubble_ns < min.bubble_ns);
    CU_ASSERT_TRUE(half.bubble_ns < plain.bubble_ns && min.bubble_ns < plain.bubble_ns);
    CU_ASSERT_TRUE(dualpipe.bubble_ns < plain.bubble_ns);
    /* The work is the same; every layer runs once for each micro-batch. */
    CU_ASSERT_TRUE(fabs((double)zbv.compute_ns / (double)plain.compute_ns - 1) < 0.01);
    CU_ASSERT_TRUE(fabs((double)dualpipe.compute_ns / (double)plain.compute_ns - 1) < 0.01);
}

/* Layers too small for a GPU last as long as the host needs; of large ones nothing changes. */
static void hosts_matter(void)
{
    static const char tiny[] =
        "world_size=1 num_layers=8 hidden_size=256 num_attention_heads=4 vocab_size=1024 "
        "seq_length=256 micro_batch_size=1 global_batch_size=4 "
        "gpu=h100-80gb-sxm";
    sim_step_time_t slow = time_of(tiny, "host_us_per_layer=4000");
    sim_step_time_t fast = time_of(tiny, "host_us_per_layer=2000");
    CU_ASSERT_TRUE(slow.step_ns >= 4 * 8 * UINT64_C(4000000));
    CU_ASSERT_TRUE(slow.launch_ns > slow.compute_ns);
    CU_ASSERT_TRUE(fabs((double)slow.step_ns / (double)fast.step_ns - 2) < 0.05);
    sim_step_time_t full = time_of(tiny, "host_us_per_layer=4000 recompute_granularity=full "
                                         "recompute_method=uniform recompute_num_layers=1");
    CU_ASSERT_TRUE(fabs((double)full.step_ns / (double)slow.step_ns - 1.5) < 0.05);
    sim_step_time_t graphs = time_of(tiny, "cuda_graph_impl=local host_us_per_layer=4000");
    CU_ASSERT_EQUAL(graphs.launch_ns, 0);
    sim_step_time_t large = time_of(llama3_70b, "host_us_per_layer=100");
    CU_ASSERT_EQUAL(large.launch_ns, 0);
}

static void links_matter(void)
{
    static const char two_hosts[] =
        "preset=llama2-7b world_size=16 tensor_model_parallel_size=8 micro_batch_size=1 "
        "seq_length=2048 global_batch_size=2 gpu=h100-80gb-sxm sequence_parallel=true";
    sim_step_time_t fast = time_of(two_hosts, "nic_gbit_per_s=400");
    sim_step_time_t slow = time_of(two_hosts, "nic_gbit_per_s=100");
    sim_step_time_t pcie = time_of(two_hosts, "nic_gbit_per_s=400 nvlink_domain=1");
    CU_ASSERT_TRUE(slow.grad_sync_ns > 3 * fast.grad_sync_ns);
    CU_ASSERT_EQUAL(slow.compute_ns, fast.compute_ns);
    CU_ASSERT_TRUE(pcie.exposed_comm_ns > 5 * fast.exposed_comm_ns);
    sim_step_time_t hidden = time_of(two_hosts, "nic_gbit_per_s=100 use_distributed_optimizer=true "
                                                "overlap_grad_reduce=true");
    CU_ASSERT_TRUE(hidden.grad_sync_ns < slow.grad_sync_ns);
}

static CU_TestInfo tests[] = {
    { "parts add up", parts_add_up },
    { "every pass has its span", every_pass_has_its_span },
    { "every message has its arrow", every_message_has_its_arrow },
    { "published layouts", published_layouts },
    { "bubble shrinks with micro-batches", bubble_shrinks_with_micro_batches },
    { "split schedules stand still for less", split_schedules_stand_still_for_less },
    { "hosts matter", hosts_matter },
    { "links matter", links_matter },
    CU_TEST_INFO_NULL,
};

int main(void)
{
    CU_SuiteInfo suites[] = { { .pName = "clock", .pTests = tests }, CU_SUITE_INFO_NULL };
    return cutap_run(suites);
}
