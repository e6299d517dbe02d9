/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/settings.h"

#include "sim/base/xmem.h"
#include "tests/cutap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool set_text(sim_scenario_t *s, const char *text, base_diag_t *diag)
{
    char *copy = base_xstrdup(text), *rest = copy;
    bool ok = true;
    for (char *word; (word = strsep(&rest, " ")) != NULL;)
        ok = (*word == '\0' || sim_scenario_set_text(s, word, "test", diag)) && ok;
    free(copy);
    return ok;
}

static bool set_list(sim_scenario_t *s, const char *const *list, base_diag_t *diag)
{
    bool ok = true;
    for (; *list != NULL; list++)
        ok = sim_scenario_set_text(s, *list, "test", diag) && ok;
    return ok;
}

bool settings_resolve(sim_scenario_t *s_p, const char *base, const char *more, base_diag_t *diag)
{
    sim_scenario_init(s_p);
    bool ok = set_text(s_p, base, diag);
    ok = set_text(s_p, more, diag) && ok;
    return sim_scenario_resolve(s_p, diag) && ok;
}

bool settings_resolve_lists(sim_scenario_t *s_p, const char *const *base, const char *const *more,
                            base_diag_t *diag)
{
    sim_scenario_init(s_p);
    bool ok = set_list(s_p, base, diag);
    ok = set_list(s_p, more, diag) && ok;
    return sim_scenario_resolve(s_p, diag) && ok;
}

static void expect_accepted(bool ok, base_diag_t *diag)
{
    for (size_t i = 0; i < diag->n; i++)
        printf("# %s\n", diag->text[i]);
    base_diag_fini(diag);
    CU_ASSERT_TRUE_FATAL(ok);
}

void settings_accepted(sim_scenario_t *s_p, const char *base, const char *more)
{
    base_diag_t diag;
    base_diag_init(&diag);
    bool ok = settings_resolve(s_p, base, more, &diag);
    expect_accepted(ok, &diag);
}

void settings_accepted_lists(sim_scenario_t *s_p, const char *const *base, const char *const *more)
{
    base_diag_t diag;
    base_diag_init(&diag);
    bool ok = settings_resolve_lists(s_p, base, more, &diag);
    expect_accepted(ok, &diag);
}

static void expect_refused(bool ok, base_diag_t *diag, const char *message)
{
    bool found = false;
    for (size_t i = 0; i < diag->n; i++)
        found = found || strstr(diag->text[i], message) != NULL;
    if (ok || !found)
        printf("# \"%s\": %s\n", message, diag->n > 0 ? diag->text[0] : "accepted");
    base_diag_fini(diag);
    CU_ASSERT_TRUE(!ok && found);
}

void settings_refused(const char *base, const char *more, const char *message)
{
    sim_scenario_t s;
    base_diag_t diag;
    base_diag_init(&diag);
    bool ok = settings_resolve(&s, base, more, &diag);
    sim_scenario_fini(&s);
    expect_refused(ok, &diag, message);
}

void settings_refused_lists(const char *const *base, const char *const *more, const char *message)
{
    sim_scenario_t s;
    base_diag_t diag;
    base_diag_init(&diag);
    bool ok = settings_resolve_lists(&s, base, more, &diag);
    sim_scenario_fini(&s);
    expect_refused(ok, &diag, message);
}
