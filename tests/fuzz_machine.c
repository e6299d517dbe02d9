/* SPDX-License-Identifier: Apache-2.0
 * libFuzzer target: any text as a machine in hwloc's XML. */
#include "config.h"

#include "tests/fuzz.h"
#include "topology/node.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    topo_node_t node;
    base_err_t err = { 0 };
    if (topo_node_parse(&node, "fuzz", text, size, &err) != BASE_OK && err.text[0] == '\0')
        abort();
    for (size_t gpu = 0; gpu < node.n_gpus; gpu++)
        for (size_t nic = 0; nic < node.n_nics; nic++)
            topo_near_name(topo_node_near(&node.gpus[gpu], &node.nics[nic]));
    topo_node_fini(&node);
    free(text);
    return 0;
}
