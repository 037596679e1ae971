#version 460
#extension GL_GOOGLE_include_directive : require
#include "bits.glsl"
#include "memory.glsl"
#include "experts.glsl"
// Kernel assign: sorts choices by expert into slots, and lists the jobs. One workgroup. Which slot of its expert a choice gets does not
// matter: slots do not depend on one another.
layout(local_size_x = 256) in;
layout(push_constant, scalar) uniform Args {
  Ints chosen, slots, sources; // slots: of the choices; sources: rows of the slots
  Jobs jobs;
  int choices, experts, topK;
} g;
shared int count[EXPERTS], first[EXPERTS], job[EXPERTS];
void main() {
  int t = int(gl_LocalInvocationID.x);
  for (int e = t; e < g.experts; e += 256) count[e] = 0;
  barrier();
  for (int i = t; i < g.choices; i += 256) g.slots.v[i] = atomicAdd(count[g.chosen.v[i]], 1);
  barrier();
  if (t == 0) {
    int slot = 0, jobs = 0;
    for (int e = 0; e < g.experts; e++) {
      first[e] = slot, job[e] = jobs;
      slot += count[e], jobs += (count[e] + JOB - 1) / JOB;
    }
    g.jobs.count = jobs;
  }
  barrier();
  for (int e = t; e < g.experts; e += 256)
    for (int i = 0; i < count[e]; i += JOB) g.jobs.v[job[e] + i / JOB] = Job(e, first[e] + i, min(JOB, count[e] - i), 0);
  for (int i = t; i < g.choices; i += 256) {
    int slot = g.slots.v[i] + first[g.chosen.v[i]];
    g.slots.v[i] = slot;
    g.sources.v[slot] = i / g.topK;
  }
}
