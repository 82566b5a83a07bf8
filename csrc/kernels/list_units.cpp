// Prints the units of this build and their mainloops, a pair a line, some of them often. The build
// runs it.
#include <cstdio>
#include <string>

#include "kernels/units.h"

int main() {
  using namespace tcgemm;
  for (std::size_t row = 0; row < kCatalog.size(); ++row)
    for (int path = 0; path < kEpiloguePaths; ++path) {
      const kernels::Unit unit = kernels::unit(kCatalog[row], EpiloguePath(path));
      if (kernels::is_compiled(row, EpiloguePath(path)))
        std::printf("%s %s\n", unit.name().text, std::string(unit.mainloop).c_str());
    }
}
