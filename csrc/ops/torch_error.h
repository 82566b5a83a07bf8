// What torch says of a call of its C shim that failed.
//
// The shim returns a code in place of the exception. From torch 2.13 on, it keeps the message. An
// older one prints it on std::cerr, with the C++ frames: there it is read, and not printed.
#pragma once

#include "ops/error.h"

namespace tcgemm::ops {

// While it lives, what this thread's calls of the shim print of their exceptions is kept.
class ReadTorchErrors {
 public:
  ReadTorchErrors();
  ~ReadTorchErrors();
  ReadTorchErrors(const ReadTorchErrors&) = delete;
  ReadTorchErrors& operator=(const ReadTorchErrors&) = delete;

 private:
  bool outer_;
};

// The message of this thread's last call that failed, without C++ frames. Empty: torch gave none,
// since its log level hides it or another logger prints it.
std::string last_torch_error();

// Throws with torch's message in front, since handlers of refused memory look for its words there.
template <class... Pieces>
[[noreturn, gnu::cold, gnu::noinline]] void fail_in_torch(const Pieces&... pieces) {
  const std::string message = last_torch_error();
  if (message.empty()) fail("tcgemm: ", pieces..., " failed; torch gave no message.");
  fail(message, " (tcgemm: ", pieces..., " failed.)");
}

}  // namespace tcgemm::ops
