/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/guard.h"

#include <setjmp.h>
#include <signal.h>
#include <stddef.h>

enum { N_SIGNALS = 5, STACK_BYTES = 1 << 16 };

static const struct {
    int number;
    const char *name;
} signals[N_SIGNALS] = {
    { SIGSEGV, "segmentation fault" },      { SIGBUS, "bus error" },
    { SIGFPE, "arithmetic exception" },     { SIGILL, "illegal instruction" },
    { SIGABRT, "aborted by an assertion" },
};

static sigjmp_buf escape;

static void on_crash(int number)
{
    siglongjmp(escape, number);
}

int sim_guard_run(void (*f)(void *arg), void *arg)
{
    /* Of its own, so that running out of stack is caught as well. */
    static char stack[STACK_BYTES];
    stack_t alternate = { .ss_sp = stack, .ss_size = sizeof(stack) }, old_stack;
    struct sigaction action = { .sa_handler = on_crash, .sa_flags = SA_ONSTACK };
    struct sigaction old[N_SIGNALS];
    sigaltstack(&alternate, &old_stack);
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < N_SIGNALS; i++)
        sigaction(signals[i].number, &action, &old[i]);
    int crashed = sigsetjmp(escape, 1);
    if (crashed == 0)
        f(arg);
    for (size_t i = 0; i < N_SIGNALS; i++)
        sigaction(signals[i].number, &old[i], NULL);
    sigaltstack(&old_stack, NULL);
    return crashed;
}

const char *sim_guard_signal_name(int signal)
{
    for (size_t i = 0; i < N_SIGNALS; i++) {
        if (signals[i].number == signal)
            return signals[i].name;
    }
    return "unknown signal";
}
