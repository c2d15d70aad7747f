// SPDX-License-Identifier: Apache-2.0
//
// How Cairn reports what went wrong: a small value type, never an exception.
//
// A Status is one shared pointer; success allocates nothing. The code is API and is what a program
// should branch on; the message is for people and names the file, offset, field or argument, with
// what was expected and what was found. Its wording may change.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace [[gnu::visibility("default")]] cairn {

// The values are part of the C ABI and never change.
enum class StatusCode : uint8_t {
  kOk = 0,
  kNotFound = 1,         // No such store, branch, model or file.
  kAlreadyExists = 2,    // The name is taken.
  kInvalidArgument = 3,  // The call can never succeed as written.
  kInvalidState = 4,     // Closed, used in a child after fork(), or not while paused.
  kConflict = 5,         // expected_length differs; the message names the real one.
  kModelMismatch = 6,    // State of one model offered to another; names the field.
  kCorruption = 7,       // Stored bytes fail their check; names file and offset.
  // Positions have no KV any more, since room was needed, or (hybrid models) were never given any.
  kEvicted = 8,
  kExpired = 9,             // Not given yet: a branch that expired is dropped, so kNotFound.
  kStale = 10,              // A reader fell behind the writer; refresh and retry.
  kNoSpace = 11,            // max_bytes or the disk is full; nothing of the call was written.
  kBusy = 12,               // Buffers are full right now; retry later.
  kPoisoned = 13,           // A log write failed earlier; reopen the store to write again.
  kUnknownOutcome = 14,     // Cut after its write was issued; expected_length settles it.
  kIoError = 15,            // The operating system refused; names call, file and errno.
  kReadOnly = 16,           // The store was opened for reading only.
  kLocked = 17,             // Another process owns the store for writing.
  kUnsupportedFormat = 18,  // The file is of a newer format than this library knows.
  kCancelled = 19,          // Cut before anything was written.
  kDeadlineExceeded = 20,   // Its deadline passed before anything was written.
  kOutOfMemory = 21,        // An allocation failed; the call left no trace.
};

// Which of several causes, where a caller may do different things about them. The values are part
// of the C ABI and never change.
enum class StatusReason : uint8_t {
  kNone = 0,
  kNamespaceQuota = 1,  // kNoSpace: max_bytes of a namespace, not that of the store, nor the disk.
  kEndOfFile = 2,       // kIoError: the file is shorter than what was asked for.
  kNoDescriptor = 3,    // kIoError: the process, or the machine, has no file descriptor left.
};

// "kNoSpace" without the k: stable, for logs and JSON.
std::string_view StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // Success.
  Status(StatusCode code, std::string message, StatusReason reason = StatusReason::kNone);

  static Status Ok() { return Status(); }

  bool ok() const { return state_ == nullptr; }
  StatusCode code() const { return state_ ? state_->code : StatusCode::kOk; }
  StatusReason reason() const { return state_ ? state_->reason : StatusReason::kNone; }
  std::string_view message() const {
    return state_ ? std::string_view(state_->message) : std::string_view();
  }
  // "NoSpace: log/00000007.log: ..." or "Ok".
  std::string ToString() const;

  // The same code and reason, with `context` and ": " before the message. Success stays success.
  Status WithContext(std::string_view context) const;

 private:
  struct State {
    StatusCode code;
    StatusReason reason;
    std::string message;
  };
  std::shared_ptr<const State> state_;
};

// A value or the reason there is none. Reading the value of a failure ends the process.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<1>, std::move(value)) {}        // NOLINT: by design
  Result(Status status) : state_(std::in_place_index<0>, std::move(status)) {  // NOLINT: by design
    if (std::get<0>(state_).ok()) BadAccess("a Result was made of a Status that is Ok");
  }

  bool ok() const { return state_.index() == 1; }
  explicit operator bool() const { return ok(); }
  Status status() const { return ok() ? Status() : std::get<0>(state_); }

  T& value() & {
    Require();
    return std::get<1>(state_);
  }
  const T& value() const& {
    Require();
    return std::get<1>(state_);
  }
  // Not a reference: `for (auto& one : *store.Namespaces())` must not outlive what it walks.
  T value() && {
    Require();
    return std::get<1>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  [[noreturn]] static void BadAccess(const char* why);
  void Require() const {
    if (!ok()) BadAccess(std::get<0>(state_).ToString().c_str());
  }
  std::variant<Status, T> state_;
};

namespace internal {
[[noreturn]] void DieBadResult(const char* why);
}  // namespace internal

template <typename T>
void Result<T>::BadAccess(const char* why) {
  internal::DieBadResult(why);
}

}  // namespace cairn
