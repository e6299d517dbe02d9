/* SPDX-License-Identifier: Apache-2.0
 * Runs the registered CUnit suites and prints TAP, one line a test. */
#ifndef TESTS_CUTAP_H
#define TESTS_CUTAP_H

#include <CUnit/CUnit.h>

/* Run `suites` (ends with CU_SUITE_INFO_NULL). Returns main's exit code: 0 only if every assertion
 * of every test held. */
int cutap_run(CU_SuiteInfo *suites);

/* Mark the running test as skipped, with the reason that the TAP line gives. */
void cutap_skip(const char *reason);

#endif
