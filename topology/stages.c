/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "topology/stages.h"

#include "sim/base/xmem.h"
#include "topology/layout_text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

uint32_t topo_n_stages(topo_placement_t placement, uint32_t pp, uint32_t vpp)
{
    return placement == TOPO_PLACEMENT_BOTH_WAYS ? pp : pp * vpp;
}

uint32_t topo_stage_of(topo_placement_t placement, uint32_t pp, uint32_t pp_rank, uint32_t chunk)
{
    if (chunk == 0 || placement == TOPO_PLACEMENT_LOOP)
        return chunk * pp + pp_rank;
    return topo_n_stages(placement, pp, 2) - 1 - pp_rank;
}

void topo_stage_place(topo_placement_t placement, uint32_t pp, uint32_t stage, uint32_t *pp_rank_p,
                      uint32_t *chunk_p)
{
    uint32_t chunk = placement == TOPO_PLACEMENT_BOTH_WAYS ? *chunk_p : stage / pp;
    bool is_reversed = chunk > 0 && placement != TOPO_PLACEMENT_LOOP;
    *pp_rank_p = is_reversed ? topo_n_stages(placement, pp, 2) - 1 - stage : stage % pp;
    *chunk_p = chunk;
}

/* A layout of pp * vpp empty chunks. */
static void create_chunks(topo_stages_t *stages, uint32_t pp, uint32_t vpp)
{
    stages->pp = pp;
    stages->vpp = vpp;
    stages->chunks = base_xcalloc((size_t)pp * vpp, sizeof(stages->chunks[0]));
}

/* Chunks in order of execution are consecutive in the array, so the offsets are a running sum. */
static void number_layers(topo_stages_t *stages)
{
    uint32_t first = 0;
    uint32_t n_stages = topo_n_stages(stages->placement, stages->pp, stages->vpp);
    for (uint32_t i = 0; i < n_stages; i++) {
        stages->chunks[i].first_layer = first;
        first += stages->chunks[i].n_layers;
    }
}

/* ---- layout string: PipelineParallelLayerLayout.validate_layer_layout() ---- */

static base_status_t at(const topo_layout_char_t *c, base_err_t *err, const char *what)
{
    return base_err_set(err, BASE_ERR_INVAL,
                        "pipeline_model_parallel_layout: position %" PRIu32 ": %s", c->position,
                        what);
}

static base_status_t check_ends(const topo_layout_text_t *text, base_err_t *err)
{
    const topo_layout_char_t *first = NULL, *last = NULL;
    for (size_t i = 0; i < text->n; i++) {
        if (text->chars[i].c == '|')
            continue;
        if (first == NULL)
            first = &text->chars[i];
        last = &text->chars[i];
    }
    if (first == NULL)
        return base_err_set(err, BASE_ERR_INVAL, "pipeline_model_parallel_layout names no layer");
    if (first->c != 'E')
        return at(first, err, "the first layer must be E, the embedding");
    if (last->c != 'L')
        return at(last, err, "the last layer must be L, the loss");
    for (size_t i = 0; i < text->n; i++) {
        const topo_layout_char_t *c = &text->chars[i];
        if (c->c == 'E' && c != first)
            return at(c, err, "a second embedding");
        if (c->c == 'L' && c != last)
            return at(c, err, "a second loss");
    }
    return BASE_OK;
}

/* MTP layers follow all decoder layers, all in one chunk, which is the last of its rank. */
static base_status_t check_mtp(const topo_layout_text_t *text, uint32_t n_stages, uint32_t pp,
                               base_err_t *err)
{
    uint32_t stage = 0, mtp_stage = UINT32_MAX;
    for (size_t i = 0; i < text->n; i++) {
        const topo_layout_char_t *c = &text->chars[i];
        stage += c->c == '|';
        if (c->c == 't' && mtp_stage != UINT32_MAX)
            return at(c, err, "a decoder layer after an MTP layer");
        if (c->c != 'm')
            continue;
        if (mtp_stage != UINT32_MAX && mtp_stage != stage)
            return at(c, err, "all MTP layers must be in one stage");
        if (stage + pp < n_stages)
            return at(c, err, "MTP layers must be in the last virtual stage of their rank");
        mtp_stage = stage;
    }
    return BASE_OK;
}

static base_status_t check_counts(const topo_layout_text_t *text,
                                  const topo_stages_config_t *config, uint32_t n_stages,
                                  base_err_t *err)
{
    uint32_t n_layers = 0, n_mtp = 0;
    for (size_t i = 0; i < text->n; i++) {
        n_layers += text->chars[i].c == 't';
        n_mtp += text->chars[i].c == 'm';
    }
    if (n_stages % config->pp != 0)
        return base_err_set(err, BASE_ERR_INVAL,
                            "pipeline_model_parallel_layout has %" PRIu32 " stages, which is not a "
                            "multiple of pipeline_model_parallel_size %" PRIu32,
                            n_stages, config->pp);
    if (config->vpp != 0 && config->vpp != n_stages / config->pp)
        return base_err_set(err, BASE_ERR_INVAL,
                            "pipeline_model_parallel_layout has %" PRIu32
                            " virtual stages a rank, but virtual_pipeline_model_parallel_size is "
                            "%" PRIu32,
                            n_stages / config->pp, config->vpp);
    if (n_layers != config->num_layers)
        return base_err_set(err, BASE_ERR_INVAL,
                            "pipeline_model_parallel_layout has %" PRIu32
                            " decoder layers (t), but num_layers is %" PRIu32,
                            n_layers, config->num_layers);
    if (n_mtp != config->mtp_num_layers)
        return base_err_set(err, BASE_ERR_INVAL,
                            "pipeline_model_parallel_layout has %" PRIu32
                            " MTP layers (m), but mtp_num_layers is %" PRIu32,
                            n_mtp, config->mtp_num_layers);
    return BASE_OK;
}

static void fill_from_layout(topo_stages_t *stages, const topo_layout_text_t *text)
{
    topo_chunk_t *chunk = stages->chunks;
    for (size_t i = 0; i < text->n; i++) {
        switch (text->chars[i].c) {
        case '|':
            chunk++;
            break;
        case 'E':
            chunk->has_embedding = true;
            break;
        case 't':
            chunk->n_layers++;
            break;
        case 'm':
            chunk->n_mtp_layers++;
            stages->mtp_standalone =
                (size_t)(chunk - stages->chunks) % stages->pp != stages->pp - 1;
            break;
        case 'L':
            chunk->has_loss = true;
            break;
        }
    }
}

static base_status_t init_from_layout(topo_stages_t *stages, const topo_stages_config_t *config,
                                      base_err_t *err)
{
    if (config->first_stage_layers != 0 || config->last_stage_layers != 0 ||
        config->account_for_embedding || config->account_for_loss)
        return base_err_set(err, BASE_ERR_INVAL,
                            "pipeline_model_parallel_layout excludes "
                            "decoder_first_pipeline_num_layers, decoder_last_pipeline_num_layers, "
                            "account_for_embedding_in_pipeline_split and "
                            "account_for_loss_in_pipeline_split");
    topo_layout_text_t text;
    base_status_t status = topo_layout_text_expand(&text, config->layout, err);
    if (status != BASE_OK)
        return status;
    uint32_t n_stages = 1;
    for (size_t i = 0; i < text.n; i++)
        n_stages += text.chars[i].c == '|';
    status = check_ends(&text, err);
    if (status == BASE_OK)
        status = check_counts(&text, config, n_stages, err);
    if (status == BASE_OK)
        status = check_mtp(&text, n_stages, config->pp, err);
    if (status == BASE_OK && config->pp == 1 && n_stages > 1)
        status = base_err_set(err, BASE_ERR_INVAL,
                              "pipeline_model_parallel_layout has %" PRIu32 " stages, but "
                              "virtual stages need pipeline_model_parallel_size > 1",
                              n_stages);
    if (status == BASE_OK) {
        create_chunks(stages, config->pp, n_stages / config->pp);
        fill_from_layout(stages, &text);
    }
    free(text.chars);
    return status;
}

/* ---- counts: get_num_layers_to_build() ---- */

/* Decoder layers of the ranks whose count is not given, TransformerConfig.__post_init__(). */
static base_status_t middle_layers(const topo_stages_config_t *config, uint32_t *per_rank_p,
                                   base_err_t *err)
{
    uint64_t given = (uint64_t)config->first_stage_layers + config->last_stage_layers;
    uint32_t n_given = (config->first_stage_layers != 0) + (config->last_stage_layers != 0);
    if (config->account_for_embedding || config->account_for_loss)
        return base_err_set(err, BASE_ERR_INVAL,
                            "account_for_embedding_in_pipeline_split and "
                            "account_for_loss_in_pipeline_split exclude "
                            "decoder_first_pipeline_num_layers and "
                            "decoder_last_pipeline_num_layers");
    if (n_given > config->pp || given > config->num_layers)
        return base_err_set(err, BASE_ERR_INVAL,
                            "the first and last pipeline stage are given %" PRIu64
                            " layers on %" PRIu32 " stages; there are only %" PRIu32
                            " layers and %" PRIu32 " stages",
                            given, n_given, config->num_layers, config->pp);
    uint32_t layers = config->num_layers - (uint32_t)given;
    uint32_t ranks = config->pp - n_given;
    if ((layers == 0) != (ranks == 0) || (ranks > 0 && layers % ranks != 0))
        return base_err_set(err, BASE_ERR_INVAL,
                            "%" PRIu32 " layers are left for the %" PRIu32
                            " pipeline stages whose count is not given; they must divide evenly",
                            layers, ranks);
    *per_rank_p = ranks > 0 ? layers / ranks : 0;
    return BASE_OK;
}

/* Slots of a rank whose count is not given; the embedding and the loss take one each where they are
 * accounted for. */
static base_status_t slots_per_rank(const topo_stages_config_t *config, uint32_t *slots_p,
                                    base_err_t *err)
{
    if (config->first_stage_layers != 0 || config->last_stage_layers != 0)
        return middle_layers(config, slots_p, err);
    uint64_t slots =
        (uint64_t)config->num_layers + config->account_for_embedding + config->account_for_loss;
    if (slots % config->pp != 0)
        return base_err_set(err, BASE_ERR_INVAL,
                            "num_layers %" PRIu32 "%s%s is not a multiple of "
                            "pipeline_model_parallel_size %" PRIu32,
                            config->num_layers,
                            config->account_for_embedding ? " plus one for the embedding" : "",
                            config->account_for_loss ? " plus one for the loss" : "", config->pp);
    *slots_p = (uint32_t)(slots / config->pp);
    return BASE_OK;
}

/* Layers of one rank, the embedding and the loss included where they are accounted for. */
static uint32_t layers_of_rank(const topo_stages_config_t *config, uint32_t slots, uint32_t rank)
{
    if (rank == config->pp - 1 && config->last_stage_layers != 0)
        return config->last_stage_layers;
    if (rank == 0 && config->first_stage_layers != 0)
        return config->first_stage_layers;
    return slots;
}

static base_status_t init_from_counts(topo_stages_t *stages, const topo_stages_config_t *config,
                                      base_err_t *err)
{
    uint32_t pp = config->pp, vpp = config->vpp == 0 ? 1 : config->vpp;
    uint32_t slots = 0;
    if (pp == 1 && vpp > 1)
        return base_err_set(err, BASE_ERR_INVAL,
                            "virtual_pipeline_model_parallel_size %" PRIu32
                            " needs pipeline_model_parallel_size > 1",
                            vpp);
    base_status_t status = slots_per_rank(config, &slots, err);
    if (status != BASE_OK)
        return status;
    topo_stages_t made = { 0 };
    for (uint32_t rank = 0; rank < pp; rank++) {
        uint32_t count = layers_of_rank(config, slots, rank);
        if (count % vpp != 0)
            return base_err_set(err, BASE_ERR_INVAL,
                                "the %" PRIu32 " layers of pipeline rank %" PRIu32
                                " are not a multiple of virtual_pipeline_model_parallel_size "
                                "%" PRIu32,
                                count, rank, vpp);
    }
    create_chunks(&made, pp, vpp);
    for (uint32_t i = 0; i < pp * vpp; i++)
        made.chunks[i].n_layers = layers_of_rank(config, slots, i % pp) / vpp;
    topo_chunk_t *first = &made.chunks[0], *last = &made.chunks[pp * vpp - 1];
    first->has_embedding = true;
    first->n_layers -= config->account_for_embedding;
    last->has_loss = true;
    last->n_layers -= config->account_for_loss;
    last->n_mtp_layers = config->mtp_num_layers;
    *stages = made;
    return BASE_OK;
}

/* Ranks with two chunks each: the layers are spread evenly over the stages. */
static base_status_t init_two_chunks(topo_stages_t *stages, const topo_stages_config_t *config,
                                     base_err_t *err)
{
    bool is_v = config->placement == TOPO_PLACEMENT_V;
    const char *name = is_v ? "a schedule in V shape" : "a schedule in both directions";
    if (config->layout != NULL || config->first_stage_layers != 0 ||
        config->last_stage_layers != 0 || config->account_for_embedding || config->account_for_loss)
        return base_err_set(err, BASE_ERR_INVAL,
                            "%s spreads the layers evenly: it excludes "
                            "pipeline_model_parallel_layout, decoder_first_pipeline_num_layers, "
                            "decoder_last_pipeline_num_layers, "
                            "account_for_embedding_in_pipeline_split and "
                            "account_for_loss_in_pipeline_split",
                            name);
    if (config->vpp != 0)
        return base_err_set(err, BASE_ERR_INVAL,
                            "%s has two chunks on each rank: it excludes "
                            "virtual_pipeline_model_parallel_size and "
                            "num_layers_per_virtual_pipeline_stage",
                            name);
    uint64_t n_stages = (uint64_t)config->pp * (is_v ? 2 : 1);
    if (config->num_layers % n_stages != 0)
        return base_err_set(err, BASE_ERR_INVAL,
                            "num_layers %" PRIu32 " is not a multiple of the %" PRIu64
                            " stages that %s has with pipeline_model_parallel_size %" PRIu32,
                            config->num_layers, n_stages, name, config->pp);
    topo_stages_config_t chain = *config;
    chain.placement = TOPO_PLACEMENT_LOOP;
    chain.vpp = is_v ? 2 : 1;
    base_status_t status = init_from_counts(stages, &chain, err);
    stages->placement = config->placement;
    stages->vpp = 2;
    return status;
}

base_status_t topo_stages_init(topo_stages_t *stages_p, const topo_stages_config_t *config,
                               base_err_t *err)
{
    if (config->num_layers == 0 || config->pp == 0)
        return base_err_set(err, BASE_ERR_INVAL,
                            "num_layers and pipeline_model_parallel_size must be at least 1");
    if (config->num_layers > TOPO_MAX_LAYERS)
        return base_err_set(err, BASE_ERR_INVAL, "num_layers %" PRIu32 " is more than %d",
                            config->num_layers, TOPO_MAX_LAYERS);
    topo_stages_t stages = { 0 };
    base_status_t status;
    if (config->placement != TOPO_PLACEMENT_LOOP)
        status = init_two_chunks(&stages, config, err);
    else if (config->layout != NULL)
        status = init_from_layout(&stages, config, err);
    else
        status = init_from_counts(&stages, config, err);
    if (status != BASE_OK)
        return status;
    number_layers(&stages);
    *stages_p = stages;
    return BASE_OK;
}

void topo_stages_fini(topo_stages_t *stages)
{
    free(stages->chunks);
    *stages = (topo_stages_t){ 0 };
}

const topo_chunk_t *topo_stages_chunk(const topo_stages_t *stages, uint32_t pp_rank, uint32_t chunk)
{
    assert(pp_rank < stages->pp && chunk < stages->vpp);
    return &stages->chunks[topo_stage_of(stages->placement, stages->pp, pp_rank, chunk)];
}
