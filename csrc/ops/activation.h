// The activation of an argument, and the sentence that lists all names.
#pragma once

#include <string>

#include "core/activation.h"
#include "ops/error.h"

namespace tcgemm::ops {

// Throws if there is no activation of this name; `remedy` ends the sentence.
inline Activation activation_of(const char* function, const std::string& text, const char* remedy) {
  for (int i = 1; i < kActivations; ++i)
    if (text == name(Activation(i))) return Activation(i);
  std::string names = name(Activation(1));
  for (int i = 2; i < kActivations; ++i)
    names += join(i + 1 < kActivations ? "\", \"" : "\" and \"", name(Activation(i)));
  fail(function, ": activation is \"", text, "\", but there are \"", names, "\"; pass one of these",
       remedy);
}

}  // namespace tcgemm::ops
