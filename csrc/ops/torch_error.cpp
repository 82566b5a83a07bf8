#include "ops/torch_error.h"

#include <algorithm>
#include <iostream>
#include <streambuf>

// torch 2.13 added it. It is weak, so that this library also loads under an older torch.
extern "C" [[gnu::weak]] const char* torch_exception_get_what_without_backtrace();

namespace tcgemm::ops {
namespace {

constexpr std::string_view kPrinted = "Exception in aoti_torch: ";

thread_local bool reads_errors = false;

std::string& printed_error() {
  static thread_local std::string text;
  return text;
}

// Passes everything to the buffer that std::cerr had, but for the exceptions of the shim that
// a thread with ReadTorchErrors prints. torch writes such a text as one piece.
class ErrorReader : public std::streambuf {
 public:
  explicit ErrorReader(std::streambuf* printed) : printed_(printed) {}

 protected:
  int_type overflow(int_type character) override {
    if (traits_type::eq_int_type(character, traits_type::eof()))
      return traits_type::not_eof(character);
    return printed_->sputc(traits_type::to_char_type(character));
  }
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    if (reads_errors) {
      const std::string_view piece(text, static_cast<std::size_t>(size));
      const std::size_t begin = piece.find(kPrinted);
      if (begin != piece.npos) {
        printed_error() = piece.substr(begin + kPrinted.size());
        return size;
      }
    }
    return printed_->sputn(text, size);
  }
  int sync() override { return printed_->pubsync(); }

 private:
  std::streambuf* printed_;
};

// It is never deleted: std::cerr is flushed after this library's objects have ended.
[[maybe_unused]] const bool kInstalled = [] {
  if (torch_exception_get_what_without_backtrace != nullptr) return false;
  std::cerr.rdbuf(new ErrorReader(std::cerr.rdbuf()));
  return true;
}();

}  // namespace

ReadTorchErrors::ReadTorchErrors() : outer_(reads_errors) { reads_errors = true; }
ReadTorchErrors::~ReadTorchErrors() { reads_errors = outer_; }

std::string last_torch_error() {
  std::string text;
  if (torch_exception_get_what_without_backtrace != nullptr)
    text = torch_exception_get_what_without_backtrace();
  else
    text.swap(printed_error());
  const std::size_t end =
      std::min({text.find("\nException raised from "), text.find("\nframe #"), text.size()});
  text.resize(end);
  text.resize(text.find_last_not_of(" \n") + 1);
  return text;
}

}  // namespace tcgemm::ops
