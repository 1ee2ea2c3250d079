/* libnvidia-ml.so.1 with as much as the agent calls. What its GPUs do stands in files of the folder
   FAKE_NVML: `GPU-0` holds the percent of use and the bytes of memory in use. Signatures and codes:
   https://docs.nvidia.com/deploy/nvml-api */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6 };
typedef struct { char uuid[16]; } Device;
typedef struct { unsigned int gpu, memory; } Utilization;
typedef struct { unsigned long long total, free, used; } Memory;
static Device devices[64];

static int read_state(Device *device, unsigned *percent, unsigned long long *used) {
  char path[4096];
  const char *folder = getenv("FAKE_NVML");
  snprintf(path, sizeof path, "%s/%s", folder ? folder : ".", device->uuid);
  FILE *file = fopen(path, "r");
  if (!file) return NOT_FOUND;
  int found = fscanf(file, "%u %llu", percent, used);
  fclose(file);
  return found == 2 ? OK : NOT_SUPPORTED; /* as an instance of MIG says */
}

static unsigned count(void) {
  unsigned percent, n = 0;
  unsigned long long used;
  for (; n < 64; n++) {
    snprintf(devices[n].uuid, sizeof devices[n].uuid, "GPU-%u", n);
    if (read_state(&devices[n], &percent, &used) == NOT_FOUND) break;
  }
  return n;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; count(); return OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return code == NOT_SUPPORTED ? "Not Supported" : "Fake"; }
int nvmlDeviceGetCount_v2(unsigned *found) { *found = count(); return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
  if (index >= count()) return INVALID;
  *device = &devices[index];
  return OK;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, Device **device) {
  for (unsigned i = 0, n = count(); i < n; i++)
    if (!strcmp(devices[i].uuid, uuid)) { *device = &devices[i]; return OK; }
  return NOT_FOUND;
}
int nvmlDeviceGetName(Device *device, char *name, unsigned length) {
  (void)device;
  snprintf(name, length, "Tesla V100");
  return OK;
}
int nvmlDeviceGetUUID(Device *device, char *uuid, unsigned length) {
  snprintf(uuid, length, "%s", device->uuid);
  return OK;
}
int nvmlDeviceGetMinorNumber(Device *device, unsigned *minor) {
  *minor = (unsigned)(device - devices);
  return OK;
}
int nvmlDeviceGetMigMode(Device *d, unsigned *now, unsigned *next) {
  (void)d; (void)now; (void)next;
  return NOT_SUPPORTED;
}
int nvmlDeviceGetTotalEccErrors(Device *d, int kind, int counter, unsigned long long *errors) {
  (void)d; (void)kind; (void)counter; (void)errors;
  return NOT_SUPPORTED;
}
int nvmlDeviceGetMemoryInfo(Device *device, Memory *memory) {
  unsigned percent;
  memory->total = 16ULL << 30;
  memory->used = 0;
  int code = read_state(device, &percent, &memory->used);
  memory->free = memory->total - memory->used;
  return code == NOT_FOUND ? code : OK;
}
int nvmlDeviceGetUtilizationRates(Device *device, Utilization *use) {
  unsigned long long used;
  use->memory = 0;
  return read_state(device, &use->gpu, &used);
}
