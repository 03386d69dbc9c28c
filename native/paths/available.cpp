#include "paths/available.h"

#include <stdexcept>

namespace outrider {
namespace {

#if defined(__x86_64__)
bool supports_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

bool supports_avx512vnni() {
  return supports_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}
#endif

}  // namespace

std::vector<const Path*> available_paths() {
  std::vector<const Path*> paths;
#if defined(__x86_64__)
  if (supports_avx512vnni()) paths.push_back(path_avx512vnni());
  if (supports_avx2()) paths.push_back(path_avx2());
#endif
  paths.push_back(path_portable());
  return paths;
}

const Path& path_named(const std::string& name) {
  for (const Path* path : available_paths())
    if (name == path->name) return *path;
  throw std::invalid_argument("this machine cannot run code path " + name);
}

}  // namespace outrider
