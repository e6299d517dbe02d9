/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/cutap.h"
#include "topology/layout_text.h"
#include "topology/stages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every layer is built once, in order of execution; one embedding, one loss; MTP in one chunk. */
static void check_partition(const topo_stages_t *stages, const topo_stages_config_t *config)
{
    uint32_t next = 0, n_embedding = 0, n_loss = 0, n_mtp = 0;
    for (uint32_t chunk = 0; chunk < stages->vpp; chunk++) {
        for (uint32_t rank = 0; rank < stages->pp; rank++) {
            const topo_chunk_t *c = topo_stages_chunk(stages, rank, chunk);
            CU_ASSERT_EQUAL(c->first_layer, next);
            next += c->n_layers;
            n_embedding += c->has_embedding;
            n_loss += c->has_loss;
            n_mtp += c->n_mtp_layers;
        }
    }
    CU_ASSERT_EQUAL(next, config->num_layers);
    CU_ASSERT_EQUAL(n_mtp, config->mtp_num_layers);
    CU_ASSERT_EQUAL(n_embedding, 1);
    CU_ASSERT_EQUAL(n_loss, 1);
    CU_ASSERT_TRUE(topo_stages_chunk(stages, 0, 0)->has_embedding);
    CU_ASSERT_TRUE(topo_stages_chunk(stages, stages->pp - 1, stages->vpp - 1)->has_loss);
}

/* get_transformer_layer_offset() for virtual stages, the uneven form included. */
static uint32_t expected_offset(const topo_stages_config_t *c, uint32_t rank, uint32_t chunk)
{
    uint32_t vpp = c->vpp == 0 ? 1 : c->vpp;
    if (c->first_stage_layers == 0 && c->last_stage_layers == 0) {
        uint32_t slots = c->num_layers + c->account_for_embedding + c->account_for_loss;
        uint32_t offset = chunk * (slots / vpp) + rank * (slots / c->pp / vpp);
        return offset - (c->account_for_embedding && (rank > 0 || chunk > 0));
    }
    uint32_t first = c->first_stage_layers / vpp, last = c->last_stage_layers / vpp;
    uint32_t middle = (c->num_layers - c->first_stage_layers - c->last_stage_layers) / vpp;
    uint32_t n_middle = c->pp - (first > 0) - (last > 0);
    uint32_t offset = chunk * (first + middle + last);
    if (rank == 0)
        return offset;
    return offset + first + (rank - (first > 0)) * (n_middle > 0 ? middle / n_middle : 0);
}

static void random_legal_counts_partition_the_layers(void)
{
    srand(3);
    for (int round = 0; round < 2000; round++) {
        uint32_t pp = 1 + (uint32_t)rand() % 9, vpp = pp > 1 ? (uint32_t)rand() % 5 : 0;
        uint32_t chunks = vpp == 0 ? 1 : vpp, each = 1 + (uint32_t)rand() % 4;
        topo_stages_config_t c = { .pp = pp, .vpp = vpp, .mtp_num_layers = (uint32_t)rand() % 3 };
        c.num_layers = pp * chunks * each;
        if (rand() % 2) {
            c.account_for_embedding = rand() % 2 && c.num_layers > 2;
            c.account_for_loss = rand() % 2 && c.num_layers > 2;
            c.num_layers -= c.account_for_embedding + c.account_for_loss;
        } else if (pp > 2) {
            uint32_t other = chunks * (1 + (uint32_t)rand() % 6);
            if (rand() % 2) {
                c.first_stage_layers = other;
                c.num_layers += other - chunks * each;
            }
            if (rand() % 2) {
                c.last_stage_layers = other;
                c.num_layers += other - chunks * each;
            }
        }
        topo_stages_t stages;
        base_err_t err = { 0 };
        CU_ASSERT_EQUAL_FATAL(topo_stages_init(&stages, &c, &err), BASE_OK);
        check_partition(&stages, &c);
        for (uint32_t i = 0; i < pp * chunks; i++)
            CU_ASSERT_EQUAL(stages.chunks[i].first_layer, expected_offset(&c, i % pp, i / pp));
        topo_stages_fini(&stages);
    }
}

static void random_legal_layouts_partition_the_layers(void)
{
    srand(4);
    for (int round = 0; round < 500; round++) {
        char text[512] = "E";
        uint32_t pp = 2 + (uint32_t)rand() % 4, vpp = 1 + (uint32_t)rand() % 3;
        topo_stages_config_t c = { .pp = pp, .num_layers = 1, .mtp_num_layers = 0, .layout = text };
        for (uint32_t stage = 0; stage < pp * vpp; stage++) {
            uint32_t n = (uint32_t)rand() % 4 + (stage == 0);
            c.num_layers += n;
            size_t end = strlen(text);
            if (rand() % 2 && n > 0)
                snprintf(text + end, sizeof(text) - end, "t*%u", n);
            else
                memset(text + end, 't', n);
            strcat(text, stage + 1 < pp * vpp ? (rand() % 2 ? "|" : ",|,") : "tmmL");
        }
        c.mtp_num_layers = 2;
        topo_stages_t stages;
        base_err_t err = { 0 };
        CU_ASSERT_EQUAL_FATAL(topo_stages_init(&stages, &c, &err), BASE_OK);
        CU_ASSERT_EQUAL(stages.vpp, vpp);
        CU_ASSERT_FALSE(stages.mtp_standalone);
        check_partition(&stages, &c);
        topo_stages_fini(&stages);
    }
}

/* The cases of Megatron-LM's own unit test of the layer builder (test_transformer_block.py). */
static void megatrons_own_legal_and_illegal_cases_are_told_apart(void)
{
    static const struct {
        topo_stages_config_t config;
        bool legal;
    } cases[] = {
        { { .num_layers = 60, .pp = 5, .last_stage_layers = 4 }, true },
        { { .num_layers = 60, .pp = 8, .first_stage_layers = 6, .last_stage_layers = 6 }, true },
        { { .num_layers = 64, .pp = 4 }, true },
        { { .num_layers = 64, .pp = 4, .vpp = 8 }, true },
        { { .num_layers = 60, .pp = 6, .first_stage_layers = 5 }, true },
        { { .num_layers = 101, .pp = 8, .first_stage_layers = 13, .last_stage_layers = 13 },
          false },
        { { .num_layers = 63, .pp = 4, .account_for_embedding = true }, true },
        { { .num_layers = 63, .pp = 4, .account_for_loss = true }, true },
        { { .num_layers = 62, .pp = 4, .account_for_embedding = true, .account_for_loss = true },
          true },
        { { .num_layers = 62,
            .pp = 4,
            .vpp = 2,
            .account_for_embedding = true,
            .account_for_loss = true },
          true },
        { { .num_layers = 65, .pp = 4 }, false },
        { { .num_layers = 65, .pp = 4, .account_for_embedding = true, .account_for_loss = true },
          false },
        { { .num_layers = 61, .pp = 4, .first_stage_layers = 12 }, false },
        { { .num_layers = 2, .pp = 4 }, false },
        { { .num_layers = 60,
            .pp = 6,
            .account_for_embedding = true,
            .first_stage_layers = 5,
            .last_stage_layers = 5 },
          false },
        { { .num_layers = 50, .pp = 2, .vpp = 7 }, false },
        { { .num_layers = 4, .pp = 4, .vpp = 4 }, false },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        topo_stages_t stages = { 0 };
        base_err_t err = { 0 };
        base_status_t status = topo_stages_init(&stages, &cases[i].config, &err);
        CU_ASSERT_EQUAL(status, cases[i].legal ? BASE_OK : BASE_ERR_INVAL);
        if (status == BASE_OK)
            check_partition(&stages, &cases[i].config);
        topo_stages_fini(&stages);
    }
}

/* Layers of the chunks in order of execution, as text. */
static const char *counts(const topo_stages_t *stages)
{
    static char text[256];
    size_t end = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < stages->pp * stages->vpp; i++)
        end += (size_t)snprintf(text + end, sizeof(text) - end, "%s%u", i > 0 ? " " : "",
                                stages->chunks[i].n_layers);
    return text;
}

/* Counts worked out in Megatron-LM's unit tests (test_cuda_graphs.py, test_pipeline_layout.py). */
static void worked_examples_give_the_known_counts(void)
{
    static const struct {
        topo_stages_config_t config;
        const char *counts;
        uint32_t mtp_chunk; /* where the MTP layer is, if there is one */
        bool standalone;
    } cases[] = {
        { { .num_layers = 4, .pp = 1 }, "4", 0, false },
        { { .num_layers = 8, .pp = 2, .vpp = 2 }, "2 2 2 2", 0, false },
        { { .num_layers = 14, .pp = 4, .account_for_embedding = true, .account_for_loss = true },
          "3 4 4 3",
          0,
          false },
        { { .num_layers = 14,
            .pp = 4,
            .vpp = 2,
            .account_for_embedding = true,
            .account_for_loss = true },
          "1 2 2 2 2 2 2 1",
          0,
          false },
        { { .num_layers = 12, .pp = 4, .first_stage_layers = 2, .last_stage_layers = 2 },
          "2 4 4 2",
          0,
          false },
        { { .num_layers = 12, .pp = 4, .vpp = 2, .first_stage_layers = 2, .last_stage_layers = 2 },
          "1 2 2 1 1 2 2 1",
          0,
          false },
        { { .num_layers = 8, .pp = 4, .mtp_num_layers = 1, .layout = "E|t*3|(t|)*5mL" },
          "0 3 1 1 1 1 1 0",
          7,
          false },
        { { .num_layers = 8, .pp = 4, .mtp_num_layers = 1, .layout = "E|t*3|(t|)*4tm|L" },
          "0 3 1 1 1 1 1 0",
          6,
          true },
        { { .num_layers = 8, .pp = 4, .mtp_num_layers = 1, .layout = "E|t*3|(t|)*3tt|m|L" },
          "0 3 1 1 1 2 0 0",
          6,
          true },
        { { .num_layers = 61, .pp = 16, .mtp_num_layers = 1, .layout = "Ettt|(tt|)*29,m|L" },
          "3 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 0 0",
          30,
          true },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        topo_stages_t stages;
        base_err_t err = { 0 };
        CU_ASSERT_EQUAL_FATAL(topo_stages_init(&stages, &cases[i].config, &err), BASE_OK);
        check_partition(&stages, &cases[i].config);
        CU_ASSERT_STRING_EQUAL(counts(&stages), cases[i].counts);
        CU_ASSERT_EQUAL(stages.mtp_standalone, cases[i].standalone);
        if (cases[i].config.mtp_num_layers > 0)
            CU_ASSERT_EQUAL(stages.chunks[cases[i].mtp_chunk].n_mtp_layers, 1);
        topo_stages_fini(&stages);
    }
}

static void counts_in_a_layout_are_written_out(void)
{
    static const struct {
        const char *text, *expanded;
    } cases[] = {
        { "Ettt|(tt|)*3,m|L", "Ettt|tt|tt|tt|m|L" },
        { "tt(E|L|m)*2,tL", "ttE|L|mE|L|mtL" },
        { "(tm)*3", "tmtmtm" },
        { "(|tt)*2,L", "|tt|ttL" },
        { "t*3|t*0m", "ttt|m" },
        { "(t*2|)*2*3", "tt|tt|||" }, /* the second count belongs to the last character */
        { "|*3", "|||" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        topo_layout_text_t text;
        base_err_t err = { 0 };
        char written[64] = "";
        CU_ASSERT_EQUAL_FATAL(topo_layout_text_expand(&text, cases[i].text, &err), BASE_OK);
        CU_ASSERT_FATAL(text.n < sizeof(written));
        for (size_t j = 0; j < text.n; j++)
            written[j] = text.chars[j].c;
        CU_ASSERT_STRING_EQUAL(written, cases[i].expanded);
        free(text.chars);
    }
}

static void errors_say_what_is_wrong_and_where(void)
{
    static const struct {
        topo_stages_config_t config;
        const char *reason;
    } cases[] = {
        { { .num_layers = 2, .pp = 2, .layout = "Et|xtL" }, "position 4: 'x': the layers are" },
        { { .num_layers = 2, .pp = 2, .layout = "Et| tL" }, "position 4: ' ': the layers are" },
        { { .num_layers = 8, .pp = 2, .layout = "E((t|)*2)*2L" }, "position 3: '(': parentheses" },
        { { .num_layers = 2, .pp = 2, .layout = "E(tt)|L" }, "position 2: '(': parentheses" },
        { { .num_layers = 2, .pp = 2, .layout = "Et()*2|L" }, "position 3: '(': parentheses" },
        { { .num_layers = 2, .pp = 2, .layout = "Et*|tL" }, "position 3: '*': a count stands" },
        { { .num_layers = 2, .pp = 2, .layout = "Et2|L" }, "position 3: '2': a count stands" },
        { { .num_layers = 2, .pp = 2, .layout = "Et\n|tL" }, "position 3: '?'" },
        { { .num_layers = 2, .pp = 2, .layout = "tE|tL" },
          "position 1: the first layer must be E" },
        { { .num_layers = 2, .pp = 2, .layout = "Et|Lt" }, "position 5: the last layer must be L" },
        { { .num_layers = 2, .pp = 2, .layout = "Et|EtL" }, "position 4: a second embedding" },
        { { .num_layers = 2, .pp = 2, .layout = "EtL|tL" }, "position 3: a second loss" },
        { { .num_layers = 2, .pp = 2, .mtp_num_layers = 1, .layout = "Etm|tL" },
          "position 5: a decoder layer after an MTP layer" },
        { { .num_layers = 2, .pp = 3, .mtp_num_layers = 2, .layout = "Ett|m|mL" },
          "position 7: all MTP layers must be in one stage" },
        { { .num_layers = 2, .pp = 2, .mtp_num_layers = 1, .layout = "Ett|m||L" },
          "position 5: MTP layers must be in the last virtual stage" },
        { { .num_layers = 2, .pp = 2, .layout = "Et|t|L" },
          "has 3 stages, which is not a multiple" },
        { { .num_layers = 2, .pp = 2, .vpp = 2, .layout = "Et|tL" },
          "has 1 virtual stages a rank" },
        { { .num_layers = 3, .pp = 2, .layout = "Et|tL" }, "has 2 decoder layers (t)" },
        { { .num_layers = 2, .pp = 2, .mtp_num_layers = 1, .layout = "Et|tL" },
          "has 0 MTP layers (m), but mtp_num_layers is 1" },
        { { .num_layers = 2, .pp = 1, .layout = "Et|tL" },
          "need pipeline_model_parallel_size > 1" },
        { { .num_layers = 2, .pp = 2, .layout = "" }, "names no layer" },
        { { .num_layers = 2, .pp = 2, .layout = ",||," }, "names no layer" },
        { { .num_layers = 2, .pp = 2, .layout = "E(t*60000|)*60000L" }, "is longer than 65536" },
        { { .num_layers = 2, .pp = 2, .layout = "Et*99999999999999999999999L" }, "is longer than" },
        { { .num_layers = 2, .pp = 2, .layout = "Et|tL", .account_for_loss = true }, "excludes" },
        { { .num_layers = 65, .pp = 4 },
          "num_layers 65 is not a multiple of pipeline_model_parallel_size 4" },
        { { .num_layers = 64, .pp = 4, .account_for_embedding = true },
          "num_layers 64 plus one for the embedding is not a multiple" },
        { { .num_layers = 4, .pp = 2, .vpp = 3 }, "the 2 layers of pipeline rank 0 are not" },
        { { .num_layers = 9, .pp = 3, .vpp = 2, .last_stage_layers = 5 },
          "the 5 layers of pipeline rank 2 are not" },
        { { .num_layers = 4, .pp = 1, .vpp = 2 }, "needs pipeline_model_parallel_size > 1" },
        { { .num_layers = 4, .pp = 1, .first_stage_layers = 2, .last_stage_layers = 2 },
          "4 layers on 2 stages; there are only 4 layers and 1 stages" },
        { { .num_layers = 4, .pp = 2, .first_stage_layers = 2, .last_stage_layers = 1 },
          "1 layers are left for the 0 pipeline stages" },
        { { .num_layers = 4, .pp = 3, .first_stage_layers = 4 }, "0 layers are left for the 2" },
        { { .num_layers = 0, .pp = 3 }, "must be at least 1" },
        { { .num_layers = 3, .pp = 0 }, "must be at least 1" },
        { { .num_layers = UINT32_MAX, .pp = UINT32_MAX }, "is more than 65536" },
        { { .num_layers = 4, .pp = 2, .vpp = UINT32_MAX }, "are not a multiple" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        topo_stages_t stages = { .pp = 77 };
        base_err_t err = { 0 };
        CU_ASSERT_EQUAL(topo_stages_init(&stages, &cases[i].config, &err), BASE_ERR_INVAL);
        CU_ASSERT_EQUAL(stages.pp, 77);
        if (strstr(err.text, cases[i].reason) == NULL)
            fprintf(stderr, "case %zu: %s\n", i, err.text);
        CU_ASSERT_PTR_NOT_NULL(strstr(err.text, cases[i].reason));
    }
}

/* In a V the last rank has the middle of the model and the first both ends; in both directions
 * every layer is there twice. */
static void two_chunks_a_rank_cover_the_model(void)
{
    for (uint32_t pp = 2; pp <= 8; pp++) {
        for (int placement = TOPO_PLACEMENT_V; placement <= TOPO_PLACEMENT_BOTH_WAYS; placement++) {
            bool is_v = placement == TOPO_PLACEMENT_V;
            uint32_t n_stages = topo_n_stages((topo_placement_t)placement, pp, 2);
            topo_stages_config_t c = { .num_layers = 3 * n_stages,
                                       .mtp_num_layers = 1,
                                       .pp = pp,
                                       .placement = (topo_placement_t)placement };
            topo_stages_t stages;
            CU_ASSERT_EQUAL_FATAL(topo_stages_init(&stages, &c, NULL), BASE_OK);
            CU_ASSERT_EQUAL(stages.vpp, 2);
            for (uint32_t r = 0; r < pp; r++) {
                for (uint32_t chunk = 0; chunk < 2; chunk++) {
                    const topo_chunk_t *t = topo_stages_chunk(&stages, r, chunk);
                    uint32_t stage = topo_stage_of(c.placement, pp, r, chunk), rank, back = chunk;
                    CU_ASSERT_EQUAL(stage, chunk == 0 ? r : n_stages - 1 - r);
                    topo_stage_place(c.placement, pp, stage, &rank, &back);
                    CU_ASSERT_TRUE(rank == r && back == chunk);
                    CU_ASSERT_TRUE(t->n_layers == 3 && t->first_layer == 3 * stage);
                    CU_ASSERT_EQUAL(t->has_embedding, stage == 0);
                    CU_ASSERT_EQUAL(t->has_loss, stage == n_stages - 1);
                    CU_ASSERT_EQUAL(t->n_mtp_layers, stage == n_stages - 1);
                }
            }
            CU_ASSERT_TRUE(topo_stages_chunk(&stages, 0, 1)->has_loss);
            CU_ASSERT_EQUAL(topo_stages_chunk(&stages, pp - 1, 0)->has_loss, !is_v);
            topo_stages_fini(&stages);
        }
    }
}

static void two_chunks_a_rank_refuse_other_splits(void)
{
    static const struct {
        topo_stages_config_t config;
        const char *reason;
    } cases[] = {
        { { .num_layers = 12, .pp = 4, .placement = TOPO_PLACEMENT_V },
          "12 is not a multiple of the 8 stages that a schedule in V shape has" },
        { { .num_layers = 10, .pp = 4, .placement = TOPO_PLACEMENT_BOTH_WAYS },
          "10 is not a multiple of the 4 stages that a schedule in both directions has" },
        { { .num_layers = 16, .pp = 4, .vpp = 2, .placement = TOPO_PLACEMENT_V },
          "excludes virtual_pipeline_model_parallel_size" },
        { { .num_layers = 16, .pp = 4, .last_stage_layers = 1, .placement = TOPO_PLACEMENT_V },
          "spreads the layers evenly" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        topo_stages_t stages = { .pp = 77 };
        base_err_t err = { 0 };
        CU_ASSERT_EQUAL(topo_stages_init(&stages, &cases[i].config, &err), BASE_ERR_INVAL);
        CU_ASSERT_EQUAL(stages.pp, 77);
        CU_ASSERT_PTR_NOT_NULL(strstr(err.text, cases[i].reason));
    }
}

static CU_TestInfo tests[] = {
    { "random legal counts partition the layers", random_legal_counts_partition_the_layers },
    { "random legal layouts partition the layers", random_legal_layouts_partition_the_layers },
    { "Megatron's own legal and illegal cases are told apart",
      megatrons_own_legal_and_illegal_cases_are_told_apart },
    { "worked examples give the known counts", worked_examples_give_the_known_counts },
    { "counts in a layout are written out", counts_in_a_layout_are_written_out },
    { "two chunks a rank cover the model", two_chunks_a_rank_cover_the_model },
    { "two chunks a rank refuse other splits", two_chunks_a_rank_refuse_other_splits },
    { "errors say what is wrong and where", errors_say_what_is_wrong_and_where },
    CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
    { "stages", NULL, NULL, NULL, NULL, tests },
    CU_SUITE_INFO_NULL,
};

int main(void)
{
    return cutap_run(suites);
}
