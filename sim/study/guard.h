/* SPDX-License-Identifier: Apache-2.0
 * Run something so that a crash in it does not end the program: one broken layout must not cost a
 * night's sweep. */
#ifndef SIM_STUDY_GUARD_H
#define SIM_STUDY_GUARD_H

/* Call f(arg). 0, or the signal (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) with which it crashed;
 * what it had allocated is then lost. Not to be nested. */
int sim_guard_run(void (*f)(void *arg), void *arg);

/* "segmentation fault", ...; static text. */
const char *sim_guard_signal_name(int signal);

#endif
