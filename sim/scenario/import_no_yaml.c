/* SPDX-License-Identifier: Apache-2.0
 * In place of the readers of YAML in a build without libyaml. */
#include "config.h"

#include "sim/scenario/import.h"

static base_status_t refuse(const char *name, base_err_t *err)
{
    return base_err_set(err, BASE_ERR_INVAL,
                        "%s: YAML cannot be read: this program was built without libyaml", name);
}

base_status_t sim_import_yaml(sim_import_t *import, const char *name, const char *text,
                              size_t length, base_err_t *err)
{
    (void)import;
    (void)text;
    (void)length;
    return refuse(name, err);
}

base_status_t sim_import_bridge_yaml(sim_import_t *import, const char *name, const char *text,
                                     size_t length, base_err_t *err)
{
    (void)import;
    (void)text;
    (void)length;
    return refuse(name, err);
}
