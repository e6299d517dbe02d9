/* SPDX-License-Identifier: Apache-2.0
 * How long it takes to make the plan of each schedule for 32 pipeline ranks and 128 micro-batches.
 */
#include "config.h"

#include "sim/schedule/plan.h"

#include <stdio.h>
#include <time.h>

enum { ROUNDS = 20, PP = 32, MICROBATCHES = 128 };

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

int main(void)
{
    static const struct {
        const char *name;
        sim_schedule_t schedule;
    } schedules[] = {
        { "zb-h1", SIM_SCHEDULE_ZB_H1 },       { "zbv", SIM_SCHEDULE_ZBV },
        { "v-half", SIM_SCHEDULE_V_HALF },     { "v-min", SIM_SCHEDULE_V_MIN },
        { "dualpipe", SIM_SCHEDULE_DUALPIPE }, { "dualpipev", SIM_SCHEDULE_DUALPIPEV }
    };
    for (size_t i = 0; i < sizeof(schedules) / sizeof(schedules[0]); i++) {
        double begin = now_ms();
        for (int round = 0; round < ROUNDS; round++) {
            sim_plan_t plan;
            base_err_t err;
            if (sim_plan_init(&plan, schedules[i].schedule, PP, MICROBATCHES, &err) != BASE_OK) {
                fprintf(stderr, "bench_schedule: %s\n", err.text);
                return 1;
            }
            sim_plan_fini(&plan);
        }
        printf("schedule %s, %d ranks, %d micro-batches: %.1f ms\n", schedules[i].name, PP,
               MICROBATCHES, (now_ms() - begin) / ROUNDS);
    }
    return 0;
}
