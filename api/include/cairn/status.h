// SPDX-License-Identifier: Apache-2.0
//
// How Cairn reports failures: a small value type, never an exception.
//
// A Status is one shared pointer. Success is a null pointer and allocates nothing; a failure
// allocates its message once, and copies share it. The code is API, and is what a program should
// branch on. The message is for people: it names the file, offset, field or argument, with what was
// expected and what was found. Its wording may change.
//
// Threads: a Status never changes after it was made, so several threads may read one, and copies of
// it are independent. Assigning to one object while another thread reads the same object is a race,
// as with std::shared_ptr. The same holds for Result, as far as its value allows.
//
// Two macros hand a failure on from a function that returns a Status or a Result itself:
//
//   cairn::Status Save(cairn::Store& store, cairn::ModelId model, const cairn::Delta& delta) {
//     CAIRN_ASSIGN_OR_RETURN(cairn::Branch chat, store.CreateBranch(model));
//     CAIRN_RETURN_IF_ERROR(chat.AppendSync(delta).status());
//     return cairn::Status::Ok();
//   }
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace [[gnu::visibility("default")]] cairn {

// Why a call failed. The values are part of the C ABI and never change. Each call lists its codes
// with what they mean there; here is the common meaning, and what a caller can do.
//
// Unless a call says otherwise, a code other than kUnknownOutcome means that nothing of the call
// was applied. Three codes can come from every call that reaches a store and are not repeated
// there: kInvalidState (closed, an empty handle, or a child of fork()), kOutOfMemory, and, where
// the call reads or writes files, kIoError.
enum class StatusCode : uint8_t {
  kOk = 0,
  kNotFound = 1,         // No such store, branch, model, object or file; or it was dropped.
  kAlreadyExists = 2,    // The name is taken, or a store exists already.
  kInvalidArgument = 3,  // The call can never succeed as written; names the field.
  kInvalidState = 4,     // Closed, an empty handle, used in a child of fork(), or paused.
  kConflict = 5,         // The branch is not what the caller expected; look again.
  kModelMismatch = 6,    // Data of one model or class offered to another; names the field.
  kCorruption = 7,       // Stored bytes fail their check; names file and offset.
  // Positions have no KV any more, since room was needed, or (hybrid models) were never given any.
  // Branch::Fill brings it back.
  kEvicted = 8,
  kExpired = 9,             // Never given yet: a branch that expired is dropped, so kNotFound.
  kStale = 10,              // A follower fell behind the writer's files; retry.
  kNoSpace = 11,            // max_bytes or the disk is full; nothing of the call was written.
  kBusy = 12,               // Buffers are full, or another call is in the way; retry later.
  kPoisoned = 13,           // A log write failed earlier; reopen the store to write again.
  kUnknownOutcome = 14,     // Ended after its write was issued; expected_length settles it.
  kIoError = 15,            // The operating system or the device refused; names call, file, errno.
  kReadOnly = 16,           // The store was opened for reading only, or the disk is.
  kLocked = 17,             // Another process owns the store for writing.
  kUnsupportedFormat = 18,  // The file has a newer format than this library knows.
  kCancelled = 19,          // Cancelled by the caller, or by Close, before it was applied.
  kDeadlineExceeded = 20,   // Its deadline passed before it was applied.
  kOutOfMemory = 21,        // An allocation failed; the call left no trace.
};

// Distinguishes causes of one code where a caller may react to them differently. The values are
// part of the C ABI and never change.
enum class StatusReason : uint8_t {
  kNone = 0,
  kNamespaceQuota = 1,  // kNoSpace: max_bytes of a namespace, not that of the store, nor the disk.
  kEndOfFile = 2,       // kIoError: the file is shorter than what was asked for.
  kNoDescriptor = 3,    // kIoError: the process, or the machine, has no file descriptor left.
};

// "kNoSpace" without the k: stable, for logs and JSON. "Unknown" for a value that does not exist.
// The text is static. Never blocks, any thread.
std::string_view StatusCodeName(StatusCode code);

// A code with a message, or success. Copying is cheap: it shares the message.
class [[nodiscard]] Status {
 public:
  Status() = default;  // Success.
  // A failure. REQUIRES: `code` is not kOk, else the process ends. May throw std::bad_alloc, as
  // std::string does.
  Status(StatusCode code, std::string message, StatusReason reason = StatusReason::kNone);

  static Status Ok() { return Status(); }

  bool ok() const { return state_ == nullptr; }
  StatusCode code() const { return state_ ? state_->code : StatusCode::kOk; }
  StatusReason reason() const { return state_ ? state_->reason : StatusReason::kNone; }
  // Empty for success. The view lives as long as this Status, or any copy of it.
  std::string_view message() const {
    return state_ ? std::string_view(state_->message) : std::string_view();
  }
  // "NoSpace: log/00000007.log: ..." or "Ok". Allocates.
  std::string ToString() const;

  // The same code and reason, with `context` and ": " before the message. Success stays success,
  // and allocates nothing.
  Status WithContext(std::string_view context) const;

 private:
  struct State {
    StatusCode code;
    StatusReason reason;
    std::string message;
  };
  std::shared_ptr<const State> state_;
};

namespace internal {
// The place of a call: a default argument Current() names the caller's file and line. A header that
// every compiler can read: std::source_location of libstdc++ 12 does not compile with clang 14.
struct CodeLocation {
  const char* file = nullptr;
  unsigned line = 0;
  static constexpr CodeLocation Current(const char* of_file = __builtin_FILE(),
                                        unsigned of_line = __builtin_LINE()) {
    return {of_file, of_line};
  }
};

// Ends the process; prints `where`, or the place that this was called from.
[[noreturn, gnu::cold, gnu::noinline]] void DieBadResult(const char* why);
[[noreturn, gnu::cold, gnu::noinline]] void DieBadResult(const char* why,
                                                         const CodeLocation& where);
}  // namespace internal

// A value, or the reason there is none. Reading the value of a failure ends the process, with the
// failure and the place that read it: file and line by value(), the address for addr2line by * and
// ->, which take no arguments. Where a program can go on after a failure, ask ok() first, or use
// CAIRN_ASSIGN_OR_RETURN.
template <typename T>
class [[nodiscard]] Result {
 public:
  // Both constructors are implicit, so that a function can return a value or a Status. Making a
  // Result of a Status that is Ok ends the process.
  Result(T value) : state_(std::in_place_index<1>, std::move(value)) {}        // NOLINT: by design
  Result(Status status) : state_(std::in_place_index<0>, std::move(status)) {  // NOLINT: by design
    if (std::get<0>(state_).ok()) {
      internal::DieBadResult("a Result was made of a Status that is Ok");
    }
  }

  bool ok() const { return state_.index() == 1; }
  explicit operator bool() const { return ok(); }
  // The failure, by value; Ok where there is a value.
  Status status() const { return ok() ? Status() : std::get<0>(state_); }

  // REQUIRES: ok(). Of an lvalue a reference that lives as long as this Result.
  using Where = internal::CodeLocation;
  T& value(const Where& where = Where::Current()) & {
    Require(where);
    return std::get<1>(state_);
  }
  const T& value(const Where& where = Where::Current()) const& {
    Require(where);
    return std::get<1>(state_);
  }
  // A temporary gives the value itself, not a reference into it: `for (auto& one :
  // *store.Namespaces())` must not outlive what it walks.
  T value(const Where& where = Where::Current()) && {
    Require(where);
    return std::get<1>(std::move(state_));
  }
  // REQUIRES: ok(), as value().
  [[gnu::always_inline]] T& operator*() & {
    Require();
    return std::get<1>(state_);
  }
  [[gnu::always_inline]] const T& operator*() const& {
    Require();
    return std::get<1>(state_);
  }
  [[gnu::always_inline]] T operator*() && {
    Require();
    return std::get<1>(std::move(state_));
  }
  [[gnu::always_inline]] T* operator->() { return &**this; }
  [[gnu::always_inline]] const T* operator->() const { return &**this; }

 private:
  // Inlined always, so that the function that reads the value is the one that calls DieBadResult.
  [[gnu::always_inline]] void Require() const {
    if (!ok()) internal::DieBadResult(std::get<0>(state_).ToString().c_str());
  }
  void Require(const Where& where) const {
    if (!ok()) internal::DieBadResult(std::get<0>(state_).ToString().c_str(), where);
  }
  std::variant<Status, T> state_;
};

}  // namespace cairn

// Returns the Status of a failed step to the caller. `expression` is a Status, evaluated once.
#define CAIRN_RETURN_IF_ERROR(expression)                                                        \
  do {                                                                                           \
    if (::cairn::Status cairn_status_ = (expression); !cairn_status_.ok()) return cairn_status_; \
  } while (false)

// CAIRN_ASSIGN_OR_RETURN(auto store, Store::Open(...)): the value of a Result, or the enclosing
// function returns its Status. A declaration or an assignment; not the body of an `if` without
// braces. `expression` is evaluated once, and the value is moved out of it.
#define CAIRN_ASSIGN_OR_RETURN(declaration, expression) \
  CAIRN_ASSIGN_OR_RETURN_IMPL(CAIRN_STATUS_CONCAT(cairn_result_, __LINE__), declaration, expression)
#define CAIRN_ASSIGN_OR_RETURN_IMPL(result, declaration, expression) \
  auto result = (expression);                                        \
  if (!result.ok()) return result.status();                          \
  declaration = std::move(*result)
#define CAIRN_STATUS_CONCAT(a, b) CAIRN_STATUS_CONCAT_INNER(a, b)
#define CAIRN_STATUS_CONCAT_INNER(a, b) a##b
