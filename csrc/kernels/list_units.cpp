// Prints the kernels of this build, a line each: unit, mainloop and index. The build runs it.
#include <cstdio>
#include <string>

#include "kernels/units.h"

int main() {
  using namespace tcgemm;
  for (std::size_t row = 0; row < kCatalog.size(); ++row)
    for (int path = 0; path < kEpiloguePaths; ++path) {
      const GemmConfig& config = kCatalog[row];
      if (!config.has_kernel(EpiloguePath(path)) || !built(row)) continue;
      const kernels::Unit unit = kernels::unit(config, EpiloguePath(path));
      std::printf("%s %s %zu\n", unit.name().text, std::string(unit.mainloop).c_str(),
                  row * kEpiloguePaths + path);
    }
}
