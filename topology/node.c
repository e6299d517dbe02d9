/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "topology/node.h"

#include "sim/base/infile.h"
#include "sim/base/xmem.h"

#include <errno.h>
#include <fcntl.h>
#include <hwloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* PCI classes: 3D and VGA controllers; Ethernet and InfiniBand. */
enum { CLASS_VGA = 0x0300, CLASS_3D = 0x0302, CLASS_ETHERNET = 0x0200, CLASS_INFINIBAND = 0x0207 };
enum { VENDOR_NVIDIA = 0x10de };
enum { MAX_XML_BYTES = 64 << 20, MAX_XML_SECONDS = 20, MAX_DEVICES = 100000 };

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

static base_status_t load(hwloc_topology_t t, const char *name, topo_node_t *node_p,
                          base_err_t *err)
{
    if (hwloc_topology_load(t) != 0)
        return base_err_set(err, BASE_ERR_PARSE, "%s: hwloc cannot read it", name);
    describe_host(t, node_p);
    find_devices(t, node_p);
    return BASE_OK;
}

static base_status_t start(hwloc_topology_t *t_p, base_err_t *err)
{
    if (hwloc_topology_init(t_p) != 0)
        return base_err_set(err, BASE_ERR_IO, "hwloc cannot start: %s", strerror(errno));
    hwloc_topology_set_io_types_filter(*t_p, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    return BASE_OK;
}

/* ---- XML, read in a process of its own ----
 *
 * hwloc trusts the XML that it reads: a damaged file ends the process that reads it. */

/* What the process hands back; the devices follow, GPUs first. */
typedef struct {
    base_status_t status;
    base_err_t err;
    topo_node_t node; /* its pointers mean nothing */
} answer_t;

static void read_xml(const char *name, const char *text, size_t length, answer_t *answer)
{
    hwloc_topology_t t;
    answer->status = start(&t, &answer->err);
    if (answer->status != BASE_OK)
        return;
    if (hwloc_topology_set_xmlbuffer(t, text, (int)length + 1) != 0)
        answer->status =
            base_err_set(&answer->err, BASE_ERR_PARSE, "%s: not an XML file of hwloc", name);
    else
        answer->status = load(t, name, &answer->node, &answer->err);
}

static bool write_all(int fd, const void *data, size_t n)
{
    for (const char *at = data; n > 0;) {
        ssize_t wrote = write(fd, at, n);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return false;
        at += wrote;
        n -= (size_t)wrote;
    }
    return true;
}

static bool read_all(int fd, void *data, size_t n)
{
    for (char *at = data; n > 0;) {
        ssize_t got = read(fd, at, n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        n -= (size_t)got;
    }
    return true;
}

static void __attribute__((noreturn))
answer_and_exit(int fd, const char *name, const char *text, size_t length)
{
    static const int deadly[] = { SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGPIPE, SIGXCPU };
    const struct rlimit seconds = { MAX_XML_SECONDS, MAX_XML_SECONDS }, none = { 0, 0 };
    for (size_t i = 0; i < sizeof(deadly) / sizeof(deadly[0]); i++)
        signal(deadly[i], SIG_DFL);
    setrlimit(RLIMIT_CPU, &seconds);
    setrlimit(RLIMIT_CORE, &none);
    int null = open("/dev/null", O_WRONLY); /* hwloc says there what it does not like */
    if (null >= 0)
        dup2(null, STDERR_FILENO);
    answer_t answer = { .status = BASE_OK };
    read_xml(name, text, length, &answer);
    const topo_node_t *node = &answer.node;
    bool ok = write_all(fd, &answer, sizeof(answer)) &&
              write_all(fd, node->gpus, node->n_gpus * sizeof(*node->gpus)) &&
              write_all(fd, node->nics, node->n_nics * sizeof(*node->nics));
    _exit(ok ? 0 : 1);
}

static bool take_devices(int fd, topo_device_t **list_p, size_t n)
{
    if (n > MAX_DEVICES)
        return false;
    *list_p = base_xcalloc(n, sizeof(**list_p));
    bool ok = read_all(fd, *list_p, n * sizeof(**list_p));
    for (size_t i = 0; i < n; i++) {
        (*list_p)[i].name[TOPO_NAME - 1] = '\0';
        (*list_p)[i].bus[sizeof((*list_p)[i].bus) - 1] = '\0';
    }
    return ok;
}

static base_status_t take_answer(int fd, const char *name, topo_node_t *node_p, base_err_t *err)
{
    answer_t answer;
    if (read_all(fd, &answer, sizeof(answer))) {
        answer.err.text[sizeof(answer.err.text) - 1] = '\0';
        if (answer.status != BASE_OK)
            return base_err_set(err, BASE_ERR_PARSE, "%s", answer.err.text);
        topo_node_t node = answer.node;
        node.gpus = node.nics = NULL;
        node.product[TOPO_NAME - 1] = node.cpu[TOPO_NAME - 1] = '\0';
        if (take_devices(fd, &node.gpus, node.n_gpus) &&
            take_devices(fd, &node.nics, node.n_nics)) {
            *node_p = node;
            return BASE_OK;
        }
        topo_node_fini(&node);
    }
    return base_err_set(err, BASE_ERR_PARSE,
                        "%s: hwloc fails on it: not a file that it has written", name);
}

base_status_t topo_node_parse(topo_node_t *node_p, const char *name, const char *text,
                              size_t length, base_err_t *err)
{
    *node_p = (topo_node_t){ 0 };
    if (length > MAX_XML_BYTES)
        return base_err_set(err, BASE_ERR_PARSE, "%s: larger than %d bytes", name, MAX_XML_BYTES);
    /* A file of hwloc names its document type and defines nothing. */
    if (memmem(text, length, "<!ENTITY", 8) != NULL)
        return base_err_set(err, BASE_ERR_PARSE, "%s: defines XML entities; hwloc's files do not",
                            name);
    int ends[2];
    if (pipe(ends) != 0)
        return base_err_set(err, BASE_ERR_IO, "%s: no pipe: %s", name, strerror(errno));
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        answer_and_exit(ends[1], name, text, length);
    }
    base_status_t status =
        child < 0
            ? base_err_set(err, BASE_ERR_IO, "%s: no process to read it: %s", name, strerror(errno))
            : BASE_OK;
    close(ends[1]);
    if (status == BASE_OK)
        status = take_answer(ends[0], name, node_p, err);
    close(ends[0]);
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    return status;
}

static base_status_t load_xml(topo_node_t *node_p, const char *path, base_err_t *err)
{
    char *text;
    size_t length;
    base_status_t status = base_infile_read(path, MAX_XML_BYTES, &text, &length, err);
    if (status != BASE_OK)
        return status;
    status = topo_node_parse(node_p, path, text, length, err);
    free(text);
    return status;
}

base_status_t topo_node_load(topo_node_t *node_p, const char *source, base_err_t *err)
{
    *node_p = (topo_node_t){ 0 };
    if (source != NULL && ends_with(source, ".xml"))
        return load_xml(node_p, source, err);
    hwloc_topology_t t;
    base_status_t status = start(&t, err);
    if (status != BASE_OK)
        return status;
    if (source != NULL && hwloc_topology_set_synthetic(t, source) != 0)
        status =
            base_err_set(err, BASE_ERR_PARSE,
                         "'%s' is neither a file that ends in .xml, nor a known machine, nor a "
                         "synthetic description of hwloc such as \"pack:2 numa:1 core:8 pu:2\"",
                         source);
    else
        status = load(t, source != NULL ? source : "this machine", node_p, err);
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
