/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/cutap.h"

#include <CUnit/TestRun.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned n_done;
static char skip_text[256];

void cutap_skip(const char *reason)
{
    snprintf(skip_text, sizeof(skip_text), "%s", reason);
}

static void print_failures(const CU_pFailureRecord first)
{
    for (CU_pFailureRecord f = first; f != NULL; f = f->pNext)
        printf("# %s:%u: %s\n", f->strFileName, f->uiLineNumber, f->strCondition);
}

static void test_complete(const CU_pTest test, const CU_pSuite suite,
                          const CU_pFailureRecord failure)
{
    n_done++;
    if (failure != NULL) {
        printf("not ok %u - %s: %s\n", n_done, suite->pName, test->pName);
        print_failures(failure);
    } else if (skip_text[0] != '\0') {
        printf("ok %u - %s: %s # SKIP %s\n", n_done, suite->pName, test->pName, skip_text);
    } else {
        printf("ok %u - %s: %s\n", n_done, suite->pName, test->pName);
    }
    skip_text[0] = '\0';
    fflush(stdout);
}

int cutap_run(CU_SuiteInfo *suites)
{
    if (CU_initialize_registry() != CUE_SUCCESS || CU_register_suites(suites) != CUE_SUCCESS) {
        printf("Bail out! %s\n", CU_get_error_msg());
        return EXIT_FAILURE;
    }
    CU_set_test_complete_handler(test_complete);
    CU_ErrorCode rc = CU_run_all_tests();
    unsigned n_failures = CU_get_number_of_failures();
    printf("1..%u\n", n_done);
    CU_cleanup_registry();
    /* CU_run_all_tests() returns success when assertions fail, so the count decides. */
    return rc == CUE_SUCCESS && n_failures == 0 && n_done > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
