/* SPDX-License-Identifier: Apache-2.0
 * record_stream: a freed block that other streams used stays active until the event recorded on
 * each of them is complete. */
#include "config.h"

#include "sim/base/xmem.h"
#include "sim/memory/alloc_internal.h"

static uint32_t event_new(sim_alloc_t *a, uint64_t number, uint32_t block)
{
    uint32_t id = a->unused_event;
    if (id != NONE) {
        a->unused_event = a->events[id].next;
    } else {
        if (a->n_events == a->events_cap) {
            a->events_cap = a->events_cap == 0 ? 64 : a->events_cap * 2;
            a->events = base_xrealloc(a->events, a->events_cap, sizeof(*a->events));
        }
        id = a->n_events++;
    }
    a->events[id] = (event_t){ .number = number, .block = block, .next = NONE };
    return id;
}

static void wait_begins(sim_alloc_t *a, const block_t *b)
{
    a->n_waiting++;
    a->active.waiting[b->pool]++;
    a->active_bytes.waiting[b->pool] += b->size;
}

static void wait_ends(sim_alloc_t *a, const block_t *b)
{
    a->n_waiting--;
    a->active.waiting[b->pool]--;
    a->active_bytes.waiting[b->pool] -= b->size;
}

void sim__record_events(sim_alloc_t *a, uint32_t id)
{
    block_t *b = &a->blocks[id];
    wait_begins(a, b);
    while (b->foreign != NONE) {
        uint32_t use = b->foreign;
        stream_t *s = &a->streams[a->foreign[use].stream];
        b->foreign = a->foreign[use].next;
        a->foreign[use].next = a->unused_foreign;
        a->unused_foreign = use;

        uint32_t event = event_new(a, ++s->n_recorded, id);
        if (s->first_event == NONE)
            s->first_event = event;
        else
            a->events[s->last_event].next = event;
        s->last_event = event;
        b->n_events++;
    }
}

static void process_stream(sim_alloc_t *a, uint32_t stream)
{
    stream_t *s = &a->streams[stream];
    while (s->first_event != NONE) {
        event_t *e = &a->events[s->first_event];
        if (e->number > s->n_done)
            return;
        uint32_t id = s->first_event, block = e->block;
        s->first_event = e->next;
        e->next = a->unused_event;
        a->unused_event = id;
        if (--a->blocks[block].n_events == 0) {
            wait_ends(a, &a->blocks[block]);
            sim__free_block(a, block);
        }
    }
}

/* PyTorch goes over the streams in the order of a hash table. Only the peak and the accumulated
 * figures of inactive_split depend on it; here it is the order of handles. */
void sim__process_events(sim_alloc_t *a)
{
    a->events_ready = false;
    for (uint32_t i = 0; i < a->n_streams; i++)
        process_stream(a, a->stream_order[i]);
}

void sim__stream_done(sim_alloc_t *a, uint32_t stream)
{
    stream_t *s = &a->streams[stream];
    s->n_done = s->n_recorded;
    a->events_ready |= s->first_event != NONE;
}

void sim__finish_all_events(sim_alloc_t *a)
{
    a->num_sync_all_streams++;
    for (uint32_t i = 0; i < a->n_streams; i++)
        sim__stream_done(a, i);
    sim__process_events(a);
}
