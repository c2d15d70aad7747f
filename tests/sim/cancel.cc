// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/cancel.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include "base/core/check.h"
#include "sim/world.h"
#include "tests/sim/store_state.h"
#include "tests/support/test_store.h"

namespace cairn::sim {
namespace {

constexpr std::byte kPoison{0xA7};
constexpr size_t kPoisonRun = 48;  // This many in a row are nobody's content.
constexpr char kName[] = "a";
constexpr uint64_t kSealed = 150, kInLog = 60;  // Positions of the branch, by where they lie.

enum class How : uint8_t { kCancel, kDeadline, kClose };
constexpr const char* kHowNames[] = {"Cancel", "deadline", "Close"};

// Memory that a call borrows.
class Borrowed {
 public:
  Borrowed(KvMemory kv, std::vector<TokenId> tokens)
      : kv_(std::move(kv)), tokens_(std::move(tokens)) {}
  ~Borrowed() { Give(); }

  KvMemory& kv() { return kv_; }
  std::vector<TokenId>& tokens() { return tokens_; }

  void TakeAway() {
    for (const auto part : Parts()) {
      std::fill(part.begin(), part.end(), kPoison);
#if defined(__SANITIZE_ADDRESS__)
      ASAN_POISON_MEMORY_REGION(part.data(), part.size());
#endif
    }
  }
  // Whether nobody wrote to it since.
  bool IsUntouched() {
    Give();
    return std::ranges::all_of(Parts(), [](std::span<std::byte> part) {
      return std::ranges::all_of(part, [](std::byte byte) { return byte == kPoison; });
    });
  }

 private:
  std::vector<std::span<std::byte>> Parts() {
    return {kv_.bytes(), std::as_writable_bytes(std::span(tokens_))};
  }
  void Give() {
#if defined(__SANITIZE_ADDRESS__)
    for (const auto part : Parts()) ASAN_UNPOISON_MEMORY_REGION(part.data(), part.size());
#endif
  }

  KvMemory kv_;
  std::vector<TokenId> tokens_;
};

// One call on one machine.
struct Call {
  Store store;
  Branch branch;
  BranchState before, after;
  std::optional<Borrowed> memory;
  uint64_t timeout_ns = UINT64_MAX;
  bool copied = false;  // It said so.

  bool changes() const { return !(after == before); }
  // Tokens, and KV for all positions that have none.
  Delta Grow(uint64_t count) {
    const uint64_t begin = after.kv_lengths[0];
    for (uint64_t i = 0; i < count; ++i) {
      after.tokens.push_back(static_cast<TokenId>(1 + after.tokens.size() * 7919 % 50'000));
    }
    after.kv_lengths[0] = after.tokens.size();
    KvMemory kv(TinyModel(), begin, after.tokens.size() - begin);
    kv.Fill(after.tokens);
    memory.emplace(std::move(kv), std::vector(after.tokens.end() - static_cast<ptrdiff_t>(count),
                                              after.tokens.end()));
    return {.tokens = memory->tokens(), .kv = memory->kv().view(), .spans = {}};
  }
  RestoreRequest Target() {
    const uint64_t length = before.tokens.size();
    memory.emplace(KvMemory(TinyModel(), 0, length), std::vector<TokenId>(length));
    RestoreRequest request;
    request.end = length;
    request.tokens = memory->tokens();
    request.into = memory->kv().view();
    request.timeout_ns = timeout_ns;
    return request;
  }
  AppendOptions Safely() const {
    AppendOptions options;
    options.durability = Durability::kPower;
    options.timeout_ns = timeout_ns;
    return options;
  }
};

struct Script {
  const char* name;
  bool restores = false;  // The memory is a target.
  bool waits_only_for_close = false;
  std::function<void(Options&)> configure;
  // A ticket; or the call is over.
  std::function<Result<Ticket>(Call&)> start;
};

void Nothing(Options&) {}
void ManyParts(Options& options) { options.submit_copy_max_bytes = 1024; }
void Coalesces(Options& options) { options.delta_batch_tokens = 4; }

// The end of a call that has no ticket, as one that never began.
Result<Ticket> Over(const Status& status) {
  if (!status.ok()) return status;
  return Ticket();
}

Result<Ticket> CommitDraft(Call& call) {
  const Delta delta = call.Grow(6);
  CAIRN_ASSIGN_OR_RETURN(Draft draft, call.branch.BeginAppend(6));
  for (uint32_t layer = 0; layer < TinyModel().groups[0].layers; ++layer) {
    GroupView group = delta.kv->groups[0];
    std::vector<PlaneView> planes(group.planes.begin(), group.planes.end());
    for (PlaneView& plane : planes) plane.layer_bases = plane.layer_bases.subspan(layer, 1);
    group.planes = planes;
    CAIRN_RETURN_IF_ERROR(draft.Put(layer, group));
  }
  return draft.Commit({.tokens = delta.tokens}, call.Safely());
}

// A part of the branch is replaced, all at once.
Result<Ticket> WriteBatchOf(Call& call) {
  call.after.Cut(kSealed + 10);
  WriteBatch batch;
  batch.Rewind(call.branch, kSealed + 10);
  batch.Append(call.branch, call.Grow(40));
  CAIRN_ASSIGN_OR_RETURN(Store::WriteResult written, call.store.Write(batch, call.Safely()));
  return std::move(written.ticket);
}

// KV for tokens that had none.
Result<Ticket> FillTokens(Call& call) {
  const Delta delta = call.Grow(40);
  const uint64_t kv_length = std::exchange(call.after.kv_lengths[0], call.before.kv_lengths[0]);
  CAIRN_RETURN_IF_ERROR(call.branch.AppendSync({.tokens = delta.tokens}, call.Safely()).status());
  call.before = call.after;
  call.after.kv_lengths[0] = kv_length;
  return Over(call.branch.Fill(*delta.kv, call.Safely()));
}

// Makes applied changes durable that are not yet; closing does that as well.
Result<Ticket> FlushAll(Call& call) {
  const Delta delta = call.Grow(120);
  CAIRN_RETURN_IF_ERROR(
      call.branch.AppendSync(delta, {.durability = Durability::kMemory}).status());
  call.before = call.after;
  return Over(call.store.Flush());
}

std::vector<Script> Scripts() {
  const auto append = [](uint64_t count) {
    return [count](Call& call) {
      const Delta delta = call.Grow(count);
      return call.branch.Append(delta, call.Safely());
    };
  };
  const auto append_sync = [](uint64_t count) {
    return [count](Call& call) {
      const Delta delta = call.Grow(count);
      return Over(call.branch.AppendSync(delta, call.Safely()).status());
    };
  };
  const auto restore_async = [](Call& call) { return call.branch.RestoreAsync(call.Target()); };
  std::vector<Script> scripts;
  scripts.push_back({"append copied", false, false, Nothing, append(3)});
  scripts.push_back({"append borrowed", false, false, ManyParts, append(120)});
  scripts.push_back({"append coalesced", false, false, Coalesces, append(1)});
  scripts.push_back({"append of many records", false, false, ManyParts, append(9000)});
  scripts.push_back({"draft", false, false, Nothing, CommitDraft});
  scripts.push_back({"write", false, false, Nothing, WriteBatchOf});
  scripts.push_back({"fill", false, false, Nothing, FillTokens});
  scripts.push_back({"append sync", false, false, Nothing, append_sync(3)});
  scripts.push_back({"restore async", true, false, Nothing, restore_async});
  scripts.push_back(
      {"restore async prefetched", true, false, Nothing, [=](Call& call) -> Result<Ticket> {
         CAIRN_RETURN_IF_ERROR(call.branch.Prefetch());
         return restore_async(call);
       }});
  scripts.push_back({"restore", true, false, Nothing,
                     [](Call& call) { return Over(call.branch.Restore(call.Target()).status()); }});
  // These cannot be cut short but by closing.
  scripts.push_back({"compact beside a restore", true, true, Nothing, [=](Call& call) {
                       auto ticket = restore_async(call);
                       const Status compacted = call.store.Compact();
                       return compacted.ok() ? std::move(ticket) : Result<Ticket>(compacted);
                     }});
  scripts.push_back({"flush", false, true, Nothing, FlushAll});
  scripts.push_back({"checkpoint", false, true, Nothing, [](Call& call) {
                       const Status made = call.store.Checkpoint("copy").status();
                       call.copied = made.ok();
                       return Over(made);
                     }});
  return scripts;
}

class Cancels {
 public:
  explicit Cancels(const CancelOptions& options) : options_(options) { Prepare(); }

  CancelResult Run() {
    for (const Script& script : Scripts()) {
      times_.clear();
      RunOnce(script, How::kClose, UINT64_MAX, UINT64_MAX);
      const std::vector<uint64_t> times = std::exchange(times_, {});
      for (const How how : {How::kCancel, How::kDeadline, How::kClose}) {
        if (script.waits_only_for_close && how != How::kClose) continue;
        for (uint64_t at = 0; at < times.size() && result_.violation.empty();
             at += options_.stride) {
          ++result_.runs;
          RunOnce(script, how, at, times[at]);
        }
      }
    }
    return std::move(result_);
  }

 private:
  static Options SmallOptions(const io::SimWorld& machine) {
    Options options = testing::TinyOptions();
    options.max_memory_bytes = 16 << 20;
    options.hot_tail_bytes = 256 << 10;
    options.executor_threads = 1;
    options.world = std::make_shared<const io::World>(machine.world());
    return options;
  }

  // A store with one branch, of which a part is sealed.
  void Prepare() {
    const io::SimWorld machine = io::MakeSimWorld(1);
    Call call;
    auto opened = Store::Open("store", SmallOptions(machine));
    CAIRN_CHECK(opened.ok());
    call.store = std::move(*opened);
    const auto model = call.store.RegisterModel(TinyModel());
    CAIRN_CHECK(model.ok());
    auto branch = call.store.CreateBranch(*model, {.name = kName});
    CAIRN_CHECK(branch.ok());
    call.after.kv_lengths = {0};
    for (const uint64_t count : {kSealed, kInLog}) {
      const Delta delta = call.Grow(count);
      CAIRN_CHECK(branch->AppendSync(delta, call.Safely()).ok());
      if (count == kSealed) CAIRN_CHECK(call.store.Compact().ok());
    }
    CAIRN_CHECK(call.store.Close().ok());
    before_ = call.after;
    disk_ = machine.disk->CrashClone(io::CrashChoice::KeepAll());
  }

  void Fail(const std::string& what) {
    if (result_.violation.empty()) result_.violation = where_ + ": " + what;
  }

  // Ends the call before operation `at`, `after_ns` from its beginning; or lets it go on.
  void RunOnce(const Script& script, How how, uint64_t at, uint64_t after_ns) {
    where_ = std::string(script.name) + ", " + kHowNames[static_cast<int>(how)] + " at operation " +
             std::to_string(at);
    const io::SimWorld machine = io::CrashWorld(*disk_, io::CrashChoice::KeepAll(), true);
    io::SimScheduler& scheduler = *machine.scheduler;
    Options options = SmallOptions(machine);
    script.configure(options);
    {
      Call call;
      call.before = call.after = before_;
      if (how == How::kDeadline) call.timeout_ns = after_ns;
      auto opened = Store::Open("store", options);
      CAIRN_CHECK(opened.ok());
      call.store = std::move(*opened);
      const auto branch = call.store.FindBranch(kName);
      CAIRN_CHECK(branch.ok());
      call.branch = *branch;
      RunCall(script, how, at, machine, call);
      if (how == How::kClose && at == UINT64_MAX) return;
      scheduler.Sleep(1'000'000'000);
      if (call.memory.has_value() && !call.memory->IsUntouched()) Fail("memory was written to");
      const Status closed = call.store.Close();
      if (!closed.ok()) Fail("close: " + closed.ToString());
      LookAgain(options, call);
    }
    LookForPoison(*machine.disk);
  }

  void RunCall(const Script& script, How how, uint64_t at, const io::SimWorld& machine,
               Call& call) {
    io::SimScheduler& scheduler = *machine.scheduler;
    const uint64_t begun_ns = scheduler.MonotonicNs();
    std::atomic<uint32_t> reached{0}, begun{0}, over{0};
    io::SimFault watch;
    watch.persistent = true;
    watch.when = [&, index = uint64_t{0}](const io::SimOperation&) mutable {
      if (at == UINT64_MAX) times_.push_back(scheduler.MonotonicNs() - begun_ns);
      if (index++ == at) {
        reached.store(1);
        scheduler.WakeAll(reached);
      }
      return false;
    };
    machine.disk->AddFault(std::move(watch));
    Result<Ticket> ticket = Ticket();
    {
      auto caller = scheduler.StartThread("caller", [&] {
        ticket = script.start(call);
        begun.store(1);
        scheduler.WakeAll(begun);
        if (ticket.ok() && ticket->valid() && how != How::kCancel) {
          static_cast<void>(ticket->Wait());
        }
        over.store(1);
        if (at == UINT64_MAX || how != How::kCancel) reached.store(1);
        scheduler.WakeAll(reached);
      });
      const uint64_t limit = scheduler.MonotonicNs() + 60'000'000'000;
      while (reached.load() == 0 && scheduler.Wait(reached, 0, limit)) {
      }
      if (options_.too_early && call.memory.has_value()) call.memory->TakeAway();
      if (how == How::kClose && at != UINT64_MAX) static_cast<void>(call.store.Close());
      while (begun.load() == 0) scheduler.Wait(begun, 0, io::kNoDeadline);
      if (how == How::kCancel && ticket.ok() && ticket->valid()) {
        static_cast<void>(ticket->Cancel());
      }
    }
    machine.disk->ClearFaults();
    if (at == UINT64_MAX) return;
    Status status = ticket.status();
    if (ticket.ok() && ticket->valid()) {
      if (!ticket->done()) Fail("the ticket is not over");
      status = ticket->status();
    }
    Judge(script, how, call, status);
    if (call.memory.has_value()) call.memory->TakeAway();
  }

  void Judge(const Script& script, How how, Call& call, const Status& status) {
    switch (status.code()) {
      case StatusCode::kOk: ++result_.done; break;
      case StatusCode::kCancelled: ++result_.cancelled; break;
      case StatusCode::kUnknownOutcome: ++result_.unknown; break;
      case StatusCode::kDeadlineExceeded: ++result_.timed_out; break;
      case StatusCode::kInvalidState:
        ++result_.refused;
        if (how != How::kClose) Fail("refused: " + status.ToString());
        break;
      default: Fail("it ends so: " + status.ToString());
    }
    if (status.ok() && script.restores &&
        (call.memory->tokens() != call.before.tokens ||
         !call.memory->kv().Matches(call.before.tokens))) {
      Fail("it says yes, and the target holds something else");
    }
    if (!call.changes()) return;
    // Its answer matches the branch.
    must_ = may_ = false;
    if (status.ok()) must_ = true;
    if (status.code() == StatusCode::kUnknownOutcome) may_ = true;
  }

  // Opened again, it holds what was said.
  void LookAgain(const Options& options, const Call& call) {
    auto store = Store::Open("store", options);
    if (!store.ok()) return Fail("opened again: " + store.status().ToString());
    const auto found = ReadStore(*store);
    if (!found.ok()) return Fail("read again: " + found.status().ToString());
    const bool changes = call.changes();
    const StoreState before{{{"", kName}, call.before}}, after{{{"", kName}, call.after}};
    const bool old = *found == before, made = changes && *found == after;
    if (!old && !made) return Fail("it holds something else");
    if (changes && must_ && !made) Fail("what was acknowledged is not there");
    if (changes && !must_ && !may_ && !old) Fail("what was refused is there");
    const auto copy = Store::Open("copy", ReadOnly(options));
    const StatusCode code = copy.status().code();
    if (!copy.ok() &&
        (call.copied || (code != StatusCode::kNotFound && code != StatusCode::kInvalidState &&
                         code != StatusCode::kCorruption))) {
      Fail("the copy: " + copy.status().ToString());
    }
    if (copy.ok()) {
      const auto copied = ReadStore(*copy);
      if (!copied.ok() || !(*copied == before)) Fail("the copy holds something else");
    }
  }

  static Options ReadOnly(Options options) {
    options.create_if_missing = false;
    options.read_only = true;
    return options;
  }

  // Content of the memory after the call was over is nowhere.
  void LookForPoison(const io::SimDisk& disk) {
    const std::vector<std::byte> run(kPoisonRun, kPoison);
    for (const std::string& path : disk.Files()) {
      const auto bytes = disk.ReadRaw(path);
      CAIRN_CHECK(bytes.ok());
      if (!std::ranges::search(*bytes, run).empty()) Fail("poison is in " + path);
    }
  }

  const CancelOptions options_;
  std::unique_ptr<io::SimDisk> disk_;
  BranchState before_;
  std::vector<uint64_t> times_;  // When the operations of the call that goes on began.
  bool must_ = false, may_ = false;
  std::string where_;
  CancelResult result_;
};

}  // namespace

std::string CancelResult::Counts() const {
  return "calls cut short " + std::to_string(runs) + ": done " + std::to_string(done) +
         ", cancelled " + std::to_string(cancelled) + ", outcome unknown " +
         std::to_string(unknown) + ", timed out " + std::to_string(timed_out) +
         ", refused by a closed store " + std::to_string(refused);
}

CancelResult RunCancels(const CancelOptions& options) { return Cancels(options).Run(); }

}  // namespace cairn::sim
