/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "topology/node.h"

#include "sim/base/xmem.h"

#include <errno.h>
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* PCI classes: 3D and VGA controllers; Ethernet and InfiniBand. */
enum { CLASS_VGA = 0x0300, CLASS_3D = 0x0302, CLASS_ETHERNET = 0x0200, CLASS_INFINIBAND = 0x0207 };
enum { VENDOR_NVIDIA = 0x10de };

static void copy_text(char to[static TOPO_NAME], const char *from)
{
    snprintf(to, TOPO_NAME, "%s", from != NULL ? from : "");
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

/* ---- devices ---- */

static uint32_t index_of_bridge(hwloc_topology_t t, hwloc_obj_t device)
{
    hwloc_obj_t host = NULL;
    for (hwloc_obj_t o = device->parent; o != NULL; o = o->parent)
        if (o->type == HWLOC_OBJ_BRIDGE && o->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST)
            host = o;
    uint32_t i = 0;
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_bridge(t, o)) != NULL;) {
        if (o == host)
            return i;
        i += o->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST;
    }
    return i;
}

static uint32_t index_of_ancestor(hwloc_topology_t t, hwloc_obj_t near, hwloc_obj_type_t type)
{
    if (type == HWLOC_OBJ_NUMANODE) {
        int first = hwloc_bitmap_first(near->nodeset);
        return first >= 0 ? (uint32_t)first : 0;
    }
    hwloc_obj_t o = near->type == type ? near : hwloc_get_ancestor_obj_by_type(t, type, near);
    return o != NULL ? o->logical_index : 0;
}

static topo_device_t describe(hwloc_topology_t t, hwloc_obj_t device)
{
    const struct hwloc_pcidev_attr_s *pci = &device->attr->pcidev;
    hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(t, device);
    topo_device_t d = {
        .package = index_of_ancestor(t, near, HWLOC_OBJ_PACKAGE),
        .numa = index_of_ancestor(t, near, HWLOC_OBJ_NUMANODE),
        .bridge = index_of_bridge(t, device),
        .is_infiniband = pci->class_id == CLASS_INFINIBAND,
    };
    snprintf(d.bus, sizeof(d.bus), "%04x:%02x:%02x.%01x", pci->domain, pci->bus, pci->dev,
             pci->func);
    if (device->io_first_child != NULL && device->io_first_child->type == HWLOC_OBJ_OS_DEVICE)
        copy_text(d.name, device->io_first_child->name);
    else
        snprintf(d.name, sizeof(d.name), "%04x:%04x", pci->vendor_id, pci->device_id);
    return d;
}

static int by_bus(const void *a, const void *b)
{
    return strcmp(((const topo_device_t *)a)->bus, ((const topo_device_t *)b)->bus);
}

static void append(topo_device_t **list, size_t *n, const topo_device_t *device)
{
    *list = base_xrealloc(*list, *n + 1, sizeof(**list));
    (*list)[(*n)++] = *device;
}

static void find_devices(hwloc_topology_t t, topo_node_t *node)
{
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_pcidev(t, o)) != NULL;) {
        const struct hwloc_pcidev_attr_s *pci = &o->attr->pcidev;
        topo_device_t d = describe(t, o);
        bool is_display = pci->class_id == CLASS_3D || pci->class_id == CLASS_VGA;
        if (is_display && pci->vendor_id == VENDOR_NVIDIA)
            append(&node->gpus, &node->n_gpus, &d);
        else if (pci->class_id == CLASS_INFINIBAND || pci->class_id == CLASS_ETHERNET)
            append(&node->nics, &node->n_nics, &d);
    }
    if (node->n_gpus > 1)
        qsort(node->gpus, node->n_gpus, sizeof(*node->gpus), by_bus);
    if (node->n_nics > 1)
        qsort(node->nics, node->n_nics, sizeof(*node->nics), by_bus);
}

/* ---- the host ---- */

static uint32_t count(hwloc_topology_t t, hwloc_obj_type_t type)
{
    int n = hwloc_get_nbobjs_by_type(t, type);
    return n > 0 ? (uint32_t)n : 0;
}

static void describe_host(hwloc_topology_t t, topo_node_t *node)
{
    hwloc_obj_t root = hwloc_get_root_obj(t);
    hwloc_obj_t package = hwloc_get_obj_by_type(t, HWLOC_OBJ_PACKAGE, 0);
    copy_text(node->product, hwloc_obj_get_info_by_name(root, "DMIProductName"));
    copy_text(node->cpu, hwloc_obj_get_info_by_name(package != NULL ? package : root, "CPUModel"));
    node->n_packages = count(t, HWLOC_OBJ_PACKAGE);
    node->n_numa = count(t, HWLOC_OBJ_NUMANODE);
    node->n_cores = count(t, HWLOC_OBJ_CORE);
    node->n_pus = count(t, HWLOC_OBJ_PU);
    node->memory_bytes = root->total_memory;
}

static base_status_t open_source(hwloc_topology_t t, const char *source, base_err_t *err)
{
    if (source == NULL)
        return BASE_OK;
    if (ends_with(source, ".xml")) {
        if (access(source, R_OK) != 0)
            return base_err_set(err, BASE_ERR_IO, "%s: %s", source, strerror(errno));
        if (hwloc_topology_set_xml(t, source) != 0)
            return base_err_set(err, BASE_ERR_PARSE, "%s: not an XML file of hwloc", source);
        return BASE_OK;
    }
    if (hwloc_topology_set_synthetic(t, source) != 0)
        return base_err_set(err, BASE_ERR_PARSE,
                            "'%s' is neither a file that ends in .xml, nor a known machine, nor a "
                            "synthetic description of hwloc such as \"pack:2 numa:1 core:8 pu:2\"",
                            source);
    return BASE_OK;
}

base_status_t topo_node_load(topo_node_t *node_p, const char *source, base_err_t *err)
{
    *node_p = (topo_node_t){ 0 };
    hwloc_topology_t t;
    if (hwloc_topology_init(&t) != 0)
        return base_err_set(err, BASE_ERR_IO, "hwloc cannot start: %s", strerror(errno));
    hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    base_status_t status = open_source(t, source, err);
    if (status == BASE_OK && hwloc_topology_load(t) != 0)
        status = base_err_set(err, BASE_ERR_PARSE, "%s: hwloc cannot read it",
                              source != NULL ? source : "this machine");
    if (status == BASE_OK) {
        describe_host(t, node_p);
        find_devices(t, node_p);
    }
    hwloc_topology_destroy(t);
    return status;
}

void topo_node_fini(topo_node_t *node)
{
    free(node->gpus);
    free(node->nics);
    *node = (topo_node_t){ 0 };
}

topo_near_t topo_node_near(const topo_device_t *gpu, const topo_device_t *nic)
{
    if (gpu->bridge == nic->bridge)
        return TOPO_NEAR_SWITCH;
    return gpu->numa == nic->numa ? TOPO_NEAR_NUMA : TOPO_NEAR_HOST;
}

const char *topo_near_name(topo_near_t near)
{
    static const char *const names[] = { "same switch", "same NUMA node", "other socket" };
    return names[near];
}
