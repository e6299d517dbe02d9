/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/engine/endless.h"

static void drop_copy(sim_endless_t *e)
{
    sim_alloc_destroy(e->alloc);
    sim_device_destroy(e->device);
    e->alloc = NULL;
    e->device = NULL;
}

static void put_aside(void *arg)
{
    sim_player_t *p = arg;
    sim_endless_t *e = &p->endless;
    if (e->alloc != NULL) { /* an earlier request was met in the end */
        drop_copy(e);
        e->has_parted = true;
    }
    if (e->has_parted)
        return;
    e->device = sim_device_clone_synthetic(p->device, SIM_DEVICE_MAX_BYTES, SIM_DEVICE_MAX_BYTES);
    e->alloc = sim_alloc_clone(p->alloc, e->device);
    e->at_op = p->n_ops;
}

void sim_endless_init(sim_player_t *p, void (*ended)(void *arg), void *arg)
{
    const sim_alloc_conf_t *conf = sim_alloc_conf(p->alloc);
    if (conf->expandable_segments || conf->per_process_memory_fraction < 1.0 ||
        p->scenario->mode == SIM_MODE_LIVE)
        return;
    p->endless = (sim_endless_t){ .ended = ended, .arg = arg };
    sim_alloc_on_full(p->alloc, put_aside, p);
}

void sim_endless_fini(sim_player_t *p)
{
    drop_copy(&p->endless);
}

bool sim_endless_go_on(sim_player_t *p)
{
    sim_endless_t *e = &p->endless;
    if (e->alloc == NULL || e->at_op != p->n_ops)
        return false;
    e->ended(e->arg);
    sim_alloc_destroy(p->alloc);
    sim_device_destroy(p->device);
    p->alloc = e->alloc;
    p->device = e->device;
    p->totals = sim_alloc_totals(p->alloc);
    p->is_out_of_memory = false;
    *e = (sim_endless_t){ .has_parted = true };
    return true;
}
