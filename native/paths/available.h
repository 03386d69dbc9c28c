// The code paths that this machine can run.
#pragma once
#include <string>
#include <vector>

#include "paths/path.h"

namespace outrider {

// Best first; the portable one is always among them.
std::vector<const Path*> available_paths();

// Throws std::invalid_argument for a name that this machine cannot run.
const Path& path_named(const std::string& name);

}  // namespace outrider
