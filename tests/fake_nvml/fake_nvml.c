/* A stand-in for libnvidia-ml.so.1, no hardware behind it: it answers the calls of NVML's C interface from a text file.
 *
 * Format-faithful: same SONAME, same structures, same error codes, so the real pynvml runs on it unchanged. The file
 * named by FAKE_NVML is read again at every call, so editing it injects a fault into a running process. Lines:
 *     driver=580.95.05           nvml=13.580.95.05    cuda=13000      count=8
 *     gpu.*.name=NVIDIA H200 (stand-in)     (a default for all)
 *     gpu.3.temperature=91                  (one GPU)
 *     gpu.3.error.temperature=999           (this query returns NVML error 999 for GPU 3)
 *     gpu.3.lost=1                          (every query returns NVML_ERROR_GPU_IS_LOST = 15)
 *     gpu.3.error.handle=999                (the GPU cannot be opened)
 *     gpu.3.xid=79                          (nvmlEventSetWait_v2 returns it once per change)
 *     gpu.3.field.94=12                     (nvmlDeviceGetFieldValues, field id 94; .field.ID.SCOPE with a scope)
 *     gpu.3.process.0=4711:1073741824       (pid:bytes of a computing process)
 *     init_error=18                         (nvmlInit returns it)
 *     hang=1                                (nvmlInit never returns)
 *     chatter=text                          (nvmlInit prints it on file descriptor 1)
 * A missing key gives NVML_ERROR_NOT_SUPPORTED (3), as boards do for what they lack. Built with -DOLD_DRIVER the
 * functions that came late are not there at all, which the binding reports as FunctionNotFound.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int ret_t;
typedef unsigned int u32;
typedef unsigned long long u64;
enum { OK = 0, UNINIT = 1, BADARG = 2, NOTSUP = 3, NOTFOUND = 6, SMALL = 7, TIMEOUT = 10, LOST = 15, UNKNOWN = 999 };
#define MAXGPU 64
#define EXPORT __attribute__((visibility("default")))
static int inits;
static int slots[MAXGPU];                 /* a handle is &slots[index] */

static int lookup(const char *key, char *out, size_t n)
{
    const char *path = getenv("FAKE_NVML");
    FILE *f = path ? fopen(path, "r") : NULL;
    char line[512];
    int found = 0;
    if (!f) return 0;
    while (fgets(line, sizeof line, f)) {
        char *eq = strchr(line, '=');
        if (!eq || line[0] == '#') continue;
        *eq = 0;
        if (strcmp(line, key)) continue;
        snprintf(out, n, "%s", eq + 1);
        out[strcspn(out, "\r\n")] = 0;
        found = 1;                        /* the last line wins */
    }
    fclose(f);
    return found;
}
static int gkey(int i, const char *what, char *out, size_t n)
{
    char k[160];
    snprintf(k, sizeof k, "gpu.%d.%s", i, what);
    if (lookup(k, out, n)) return 1;
    snprintf(k, sizeof k, "gpu.*.%s", what);
    return lookup(k, out, n);
}
static int idx(void *h) { return (int)((int *)h - slots); }
static ret_t check(void *h, const char *what)
{
    char v[64], k[160];
    if (!inits) return UNINIT;
    if (idx(h) < 0 || idx(h) >= MAXGPU) return BADARG;
    if (gkey(idx(h), "lost", v, sizeof v) && atoi(v)) return LOST;
    snprintf(k, sizeof k, "error.%s", what);
    if (gkey(idx(h), k, v, sizeof v)) return atoi(v);
    return OK;
}
static ret_t getstr(void *h, const char *what, char *out, u32 n)
{
    char v[512];
    ret_t r = check(h, what);
    if (r) return r;
    if (!gkey(idx(h), what, v, sizeof v)) return NOTSUP;
    if (strlen(v) + 1 > n) return SMALL;
    strcpy(out, v);
    return OK;
}
static ret_t getnum(void *h, const char *what, u64 *out)
{
    char v[64];
    ret_t r = check(h, what);
    if (r) return r;
    if (!gkey(idx(h), what, v, sizeof v)) return NOTSUP;
    *out = strtoull(v, NULL, 0);
    return OK;
}
static ret_t getu32(void *h, u32 *out, const char *fmt, ...)
{
    char k[128];
    u64 x = 0;
    va_list a;
    va_start(a, fmt); vsnprintf(k, sizeof k, fmt, a); va_end(a);
    ret_t r = getnum(h, k, &x);
    if (!r) *out = (u32)x;
    return r;
}
static ret_t getu64(void *h, u64 *out, const char *fmt, ...)
{
    char k[128];
    va_list a;
    va_start(a, fmt); vsnprintf(k, sizeof k, fmt, a); va_end(a);
    return getnum(h, k, out);
}

/* ---- library and system ---- */
EXPORT ret_t nvmlInitWithFlags(u32 flags)
{
    char v[256];
    (void)flags;
    if (!getenv("FAKE_NVML")) return 9;
    if (lookup("chatter", v, sizeof v)) { if (write(1, v, strlen(v)) < 0 || write(1, "\n", 1) < 0) return UNKNOWN; printf("%s\n", v); }
    while (lookup("hang", v, sizeof v)) usleep(50000);
    if (lookup("init_error", v, sizeof v)) return atoi(v);
    inits++;
    return OK;
}
EXPORT ret_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
EXPORT ret_t nvmlInit(void) { return nvmlInitWithFlags(0); }
EXPORT ret_t nvmlShutdown(void) { if (!inits) return UNINIT; inits--; return OK; }
EXPORT const char *nvmlErrorString(ret_t r)
{
    switch (r) {
    case OK: return "Success"; case UNINIT: return "Uninitialized"; case BADARG: return "Invalid Argument";
    case NOTSUP: return "Not Supported"; case 4: return "Insufficient Permissions"; case NOTFOUND: return "Not Found";
    case SMALL: return "Insufficient Size"; case 9: return "Driver Not Loaded"; case TIMEOUT: return "Timeout";
    case 13: return "Function Not Found"; case LOST: return "GPU is lost"; case 16: return "GPU requires reset";
    default: return "Unknown Error";
    }
}
static ret_t sysstr(const char *key, char *out, u32 n)
{
    char v[256];
    if (!inits) return UNINIT;
    if (!lookup(key, v, sizeof v)) return NOTSUP;
    if (strlen(v) + 1 > n) return SMALL;
    strcpy(out, v);
    return OK;
}
EXPORT ret_t nvmlSystemGetDriverVersion(char *o, u32 n) { return sysstr("driver", o, n); }
EXPORT ret_t nvmlSystemGetNVMLVersion(char *o, u32 n) { return sysstr("nvml", o, n); }
EXPORT ret_t nvmlSystemGetCudaDriverVersion(int *o) { char v[32]; ret_t r = sysstr("cuda", v, sizeof v); if (!r) *o = atoi(v); return r; }
EXPORT ret_t nvmlSystemGetCudaDriverVersion_v2(int *o) { return nvmlSystemGetCudaDriverVersion(o); }
EXPORT ret_t nvmlDeviceGetCount_v2(u32 *n) { char v[32]; ret_t r = sysstr("count", v, sizeof v); if (!r) *n = (u32)atoi(v); return r; }
EXPORT ret_t nvmlDeviceGetCount(u32 *n) { return nvmlDeviceGetCount_v2(n); }

/* ---- handles ---- */
EXPORT ret_t nvmlDeviceGetHandleByIndex_v2(u32 i, void **h)
{
    u32 n = 0;
    ret_t r = nvmlDeviceGetCount_v2(&n);
    if (r) return r;
    if (i >= n || i >= MAXGPU) return BADARG;
    *h = &slots[i];
    return check(*h, "handle");
}
EXPORT ret_t nvmlDeviceGetHandleByIndex(u32 i, void **h) { return nvmlDeviceGetHandleByIndex_v2(i, h); }
static ret_t handle_by(const char *key, const char *want, void **h)
{
    char v[256];
    u32 n = 0;
    ret_t r = nvmlDeviceGetCount_v2(&n);
    for (u32 i = 0; !r && i < n && i < MAXGPU; i++)
        if (gkey(i, key, v, sizeof v) && !strcasecmp(v, want)) { *h = &slots[i]; return check(*h, "handle"); }
    return r ? r : NOTFOUND;
}
EXPORT ret_t nvmlDeviceGetHandleByUUID(const char *u, void **h) { return handle_by("uuid", u, h); }
EXPORT ret_t nvmlDeviceGetHandleBySerial(const char *u, void **h) { return handle_by("serial", u, h); }
EXPORT ret_t nvmlDeviceGetHandleByPciBusId_v2(const char *u, void **h) { return handle_by("busid", u, h); }

/* ---- strings and plain numbers ---- */
#define STR(fn, key) EXPORT ret_t fn(void *h, char *o, u32 n) { return getstr(h, key, o, n); }
#define U32(fn, key) EXPORT ret_t fn(void *h, u32 *o) { return getu32(h, o, key); }
#define U64(fn, key) EXPORT ret_t fn(void *h, u64 *o) { return getu64(h, o, key); }
STR(nvmlDeviceGetName, "name")                     STR(nvmlDeviceGetUUID, "uuid")
STR(nvmlDeviceGetSerial, "serial")                 STR(nvmlDeviceGetVbiosVersion, "vbios")
STR(nvmlDeviceGetBoardPartNumber, "partnumber")    STR(nvmlDeviceGetInforomImageVersion, "inforom")
U32(nvmlDeviceGetMinorNumber, "minor")             U32(nvmlDeviceGetBrand, "brand")
U32(nvmlDeviceGetArchitecture, "arch")             U32(nvmlDeviceGetNumGpuCores, "cores")
U32(nvmlDeviceGetPowerUsage, "power")              U32(nvmlDeviceGetEnforcedPowerLimit, "powerlimit")
U32(nvmlDeviceGetPowerManagementLimit, "powerlimit") U32(nvmlDeviceGetPowerManagementDefaultLimit, "powerdefault")
U64(nvmlDeviceGetTotalEnergyConsumption, "energy") U32(nvmlDeviceGetPersistenceMode, "persistence")
U32(nvmlDeviceGetComputeMode, "computemode")       U32(nvmlDeviceGetPerformanceState, "pstate")
U64(nvmlDeviceGetCurrentClocksThrottleReasons, "clockreasons")
U64(nvmlDeviceGetSupportedClocksEventReasons, "clockreasons.supported")
U32(nvmlDeviceGetMaxPcieLinkGeneration, "pcie.maxgen") U32(nvmlDeviceGetMaxPcieLinkWidth, "pcie.maxwidth")
U32(nvmlDeviceGetGpuMaxPcieLinkGeneration, "pcie.maxgen")
U32(nvmlDeviceGetCurrPcieLinkGeneration, "pcie.gen") U32(nvmlDeviceGetCurrPcieLinkWidth, "pcie.width")
U32(nvmlDeviceGetPcieReplayCounter, "pcie.replay") U32(nvmlDeviceGetPcieSpeed, "pcie.speed")
U32(nvmlDeviceGetNumFans, "fans")                  U32(nvmlDeviceGetMemoryBusWidth, "buswidth")
U32(nvmlDeviceGetVirtualizationMode, "virtualization") U32(nvmlDeviceGetRetiredPagesPendingStatus, "retired.pending")
EXPORT ret_t nvmlDeviceValidateInforom(void *h)
{
    u32 x = 0;
    ret_t r = getu32(h, &x, "inforom.valid");
    return r ? r : x ? OK : 14;
}
EXPORT ret_t nvmlDeviceGetDefaultApplicationsClock(void *h, u32 t, u32 *o) { return getu32(h, o, "appclock.default.%u", t); }
EXPORT ret_t nvmlDeviceGetIndex(void *h, u32 *o) { ret_t r = check(h, "index"); if (!r) *o = (u32)idx(h); return r; }
EXPORT ret_t nvmlDeviceGetTemperature(void *h, u32 s, u32 *o) { (void)s; return getu32(h, o, "temperature"); }
EXPORT ret_t nvmlDeviceGetTemperatureThreshold(void *h, u32 t, u32 *o) { return getu32(h, o, "tempthreshold.%u", t); }
EXPORT ret_t nvmlDeviceGetClockInfo(void *h, u32 t, u32 *o) { return getu32(h, o, "clock.%u", t); }
EXPORT ret_t nvmlDeviceGetMaxClockInfo(void *h, u32 t, u32 *o) { return getu32(h, o, "maxclock.%u", t); }
EXPORT ret_t nvmlDeviceGetApplicationsClock(void *h, u32 t, u32 *o) { return getu32(h, o, "appclock.%u", t); }
EXPORT ret_t nvmlDeviceGetCudaComputeCapability(void *h, int *ma, int *mi) { u32 x = 0; ret_t r = getu32(h, &x, "cc"); if (!r) { *ma = x / 10; *mi = x % 10; } return r; }
EXPORT ret_t nvmlDeviceGetEccMode(void *h, u32 *c, u32 *p) { ret_t r = getu32(h, c, "ecc"); if (!r && getu32(h, p, "ecc.pending")) *p = *c; return r; }
EXPORT ret_t nvmlDeviceGetMigMode(void *h, u32 *c, u32 *p) { ret_t r = getu32(h, c, "mig"); if (!r && getu32(h, p, "mig.pending")) *p = *c; return r; }
EXPORT ret_t nvmlDeviceGetTotalEccErrors(void *h, u32 t, u32 c, u64 *o) { return getu64(h, o, "eccerrors.%u.%u", t, c); }
EXPORT ret_t nvmlDeviceGetMemoryErrorCounter(void *h, u32 t, u32 c, u32 l, u64 *o) { return getu64(h, o, "eccerrors.%u.%u.%u", t, c, l); }
EXPORT ret_t nvmlDeviceGetRemappedRows(void *h, u32 *c, u32 *u, u32 *p, u32 *f)
{
    ret_t r = getu32(h, c, "remapped.corr");
    if (!r) r = getu32(h, u, "remapped.unc");
    if (!r && getu32(h, p, "remapped.pending")) *p = 0;
    if (!r && getu32(h, f, "remapped.failure")) *f = 0;
    return r;
}
EXPORT ret_t nvmlDeviceGetNvLinkState(void *h, u32 l, u32 *o) { return getu32(h, o, "nvlink.%u.state", l); }
EXPORT ret_t nvmlDeviceGetNvLinkVersion(void *h, u32 l, u32 *o) { return getu32(h, o, "nvlink.%u.version", l); }
EXPORT ret_t nvmlDeviceGetNvLinkErrorCounter(void *h, u32 l, u32 c, u64 *o) { return getu64(h, o, "nvlink.%u.error.%u", l, c); }
EXPORT ret_t nvmlDeviceGetTopologyCommonAncestor(void *a, void *b, u32 *o) { return getu32(a, o, "topo.%d", idx(b)); }
EXPORT ret_t nvmlDeviceGetP2PStatus(void *a, void *b, u32 cap, u32 *o) { return getu32(a, o, "p2p.%u.%d", cap, idx(b)); }

/* ---- structures ---- */
typedef struct { u64 total, free, used; } mem_t;
typedef struct { u32 version; u64 total, reserved, free, used; } mem2_t;
EXPORT ret_t nvmlDeviceGetMemoryInfo(void *h, mem_t *m) { ret_t r = getu64(h, &m->total, "mem.total"); if (r) return r; if (getu64(h, &m->used, "mem.used")) m->used = 0; m->free = m->total - m->used; return OK; }
EXPORT ret_t nvmlDeviceGetMemoryInfo_v2(void *h, mem2_t *m) { mem_t a; ret_t r = nvmlDeviceGetMemoryInfo(h, &a); if (r) return r; m->total = a.total; m->used = a.used; m->free = a.free; m->reserved = 0; return OK; }
EXPORT ret_t nvmlDeviceGetBAR1MemoryInfo(void *h, mem_t *m) { ret_t r = getu64(h, &m->total, "bar1.total"); if (r) return r; m->used = 0; m->free = m->total; return OK; }
typedef struct { u32 gpu, memory; } util_t;
EXPORT ret_t nvmlDeviceGetUtilizationRates(void *h, util_t *u) { ret_t r = getu32(h, &u->gpu, "util"); if (!r && getu32(h, &u->memory, "util.mem")) u->memory = 0; return r; }
typedef struct { char legacy[16]; u32 domain, bus, device, devid, subid; char busid[32]; } pci_t;
EXPORT ret_t nvmlDeviceGetPciInfo_v3(void *h, pci_t *p)
{
    u32 x = 0;
    ret_t r;
    memset(p, 0, sizeof *p);
    r = getstr(h, "busid", p->busid, sizeof p->busid);
    if (r) return r;
    if (sscanf(p->busid, "%x:%x:%x", &p->domain, &p->bus, &p->device) != 3) return UNKNOWN;
    snprintf(p->legacy, sizeof p->legacy, "%04X:%02X:%02X.0", p->domain & 0xffff, p->bus & 0xff, p->device & 0xff);
    if (!getu32(h, &x, "pci.id")) p->devid = x;
    if (!getu32(h, &x, "pci.subid")) p->subid = x;
    return OK;
}
EXPORT ret_t nvmlDeviceGetPciInfo(void *h, pci_t *p) { return nvmlDeviceGetPciInfo_v3(h, p); }
typedef struct { u32 id, scope; long long ts, lat; int type; ret_t ret; union { double d; u32 u; u64 ull; } val; } field_t;
EXPORT ret_t nvmlDeviceGetFieldValues(void *h, int n, field_t *f)
{
    for (int i = 0; i < n; i++) {
        u64 x = 0;
        f[i].ret = f[i].scope ? getu64(h, &x, "field.%u.%u", f[i].id, f[i].scope) : getu64(h, &x, "field.%u", f[i].id);
        f[i].type = 3;                    /* unsigned long long */
        f[i].val.ull = x;
    }
    return check(h, "fields");
}
typedef struct { u32 pid; u64 used; u32 gi, ci; } process_t;   /* the same in versions 2 and 3 */
static ret_t processes(void *h, const char *what, u32 *n, process_t *list)
{
    char v[64], k[64];
    u32 found = 0, room = *n;
    ret_t r = check(h, what);
    if (r) return r;
    for (;; found++) {
        snprintf(k, sizeof k, "%s.%u", what, found);
        if (!gkey(idx(h), k, v, sizeof v)) break;
        if (!list || found >= room) continue;
        char *colon = strchr(v, ':');
        memset(&list[found], 0, sizeof *list);
        list[found].pid = (u32)strtoul(v, NULL, 0);
        list[found].used = colon ? strtoull(colon + 1, NULL, 0) : 0;
    }
    *n = found;
    return found > (list ? room : 0) ? SMALL : OK;
}
EXPORT ret_t nvmlDeviceGetComputeRunningProcesses_v2(void *h, u32 *n, process_t *p) { return processes(h, "process", n, p); }
EXPORT ret_t nvmlDeviceGetGraphicsRunningProcesses_v2(void *h, u32 *n, process_t *p) { return processes(h, "graphics", n, p); }
EXPORT ret_t nvmlDeviceGetNvLinkRemoteDeviceType(void *h, u32 l, u32 *o) { return getu32(h, o, "nvlink.%u.remote", l); }
EXPORT ret_t nvmlDeviceGetNvLinkRemotePciInfo_v2(void *h, u32 l, pci_t *p)
{
    char k[64];
    ret_t r;
    memset(p, 0, sizeof *p);
    snprintf(k, sizeof k, "nvlink.%u.remote.busid", l);
    r = getstr(h, k, p->busid, sizeof p->busid);
    if (r) return r;
    return sscanf(p->busid, "%x:%x:%x", &p->domain, &p->bus, &p->device) == 3 ? OK : UNKNOWN;
}
#ifndef OLD_DRIVER
typedef struct { u32 version; int sensor; int temperature; } temp_t;
EXPORT ret_t nvmlDeviceGetTemperatureV(void *h, temp_t *t) { u32 x = 0; ret_t r = getu32(h, &x, "temperature"); if (!r) t->temperature = (int)x; return r; }
typedef struct { u32 version; int margin; } margin_t;
EXPORT ret_t nvmlDeviceGetMarginTemperature(void *h, margin_t *m) { u32 x = 0; ret_t r = getu32(h, &x, "margin"); if (!r) m->margin = (int)x; return r; }
U64(nvmlDeviceGetCurrentClocksEventReasons, "clockreasons") U32(nvmlDeviceGetModuleId, "module")
STR(nvmlDeviceGetGspFirmwareVersion, "gsp")
EXPORT ret_t nvmlDeviceGetComputeRunningProcesses_v3(void *h, u32 *n, process_t *p) { return processes(h, "process", n, p); }
EXPORT ret_t nvmlDeviceGetGraphicsRunningProcesses_v3(void *h, u32 *n, process_t *p) { return processes(h, "graphics", n, p); }
typedef struct { u32 version; unsigned char uuid[16]; int status; u32 clique, state, health; unsigned char summary; } fabric_t;
EXPORT ret_t nvmlDeviceGetGpuFabricInfoV(void *h, fabric_t *f)
{
    u32 newest = 3, status = 0;
    ret_t r = check(h, "fabric");
    if (r) return r;
    if (getu32(h, &newest, "fabric.newest")) newest = 3;
    if (f->version >> 24 > newest) return 25;           /* NVML_ERROR_ARGUMENT_VERSION_MISMATCH */
    r = getu32(h, &f->state, "fabric.state");
    if (r) return r;
    if (!getu32(h, &status, "fabric.status")) f->status = (int)status;
    if (getu32(h, &f->health, "fabric.health")) f->health = 0;
    return OK;
}
#endif

/* ---- events (Xid) ---- */
typedef struct { u64 types[MAXGPU]; u64 last[MAXGPU]; } set_t;
typedef struct { void *device; u64 type, data; u32 gi, ci; } event_t;
static u64 xid_of(int i) { char v[32]; return gkey(i, "xid", v, sizeof v) ? strtoull(v, NULL, 0) : 0; }
EXPORT ret_t nvmlEventSetCreate(void **s) { *s = calloc(1, sizeof(set_t)); return *s ? OK : UNKNOWN; }
EXPORT ret_t nvmlEventSetFree(void *s) { free(s); return OK; }
EXPORT ret_t nvmlDeviceGetSupportedEventTypes(void *h, u64 *t) { ret_t r = check(h, "events"); if (!r) *t = 0x8; return r; }
EXPORT ret_t nvmlDeviceRegisterEvents(void *h, u64 t, void *s) { ret_t r = check(h, "events"); if (!r) { ((set_t *)s)->types[idx(h)] |= t; ((set_t *)s)->last[idx(h)] = xid_of(idx(h)); } return r; }
EXPORT ret_t nvmlEventSetWait_v2(void *sv, event_t *e, u32 ms)
{
    set_t *s = sv;
    for (u32 waited = 0;; waited += 20) {
        for (int i = 0; i < MAXGPU; i++) {
            u64 x = s->types[i] & 8 ? xid_of(i) : 0;
            if (s->types[i] & 8 && x != s->last[i]) {
                s->last[i] = x;
                if (!x) continue;
                memset(e, 0, sizeof *e);
                e->device = &slots[i]; e->type = 8; e->data = x; e->gi = e->ci = 0xffffffff;
                return OK;
            }
        }
        if (waited >= ms) return TIMEOUT;
        usleep(20000);
    }
}
