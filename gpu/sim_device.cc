// SPDX-License-Identifier: Apache-2.0
#include "gpu/sim_device.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/core/check.h"
#include "base/core/out_of_memory.h"
#include "base/core/seeded_random.h"
#include "base/io/guarded_memory.h"
#include "gpu/sim_grid.h"
#include "gpu/sim_kernels.h"
#include "gpu/sim_work.h"

namespace cairn::gpu {
namespace {

constexpr uint64_t kPollNs = 50'000;  // Between two looks at a word that others set.
constexpr uint64_t kLateMax = 3;      // How often Reached says no too much.
constexpr uint8_t kRubbish = 0xcb;

std::atomic<uint64_t> devices{0};

Status Invalid(const std::string& what) {
  return Status(StatusCode::kInvalidArgument, "device: " + what);
}

class Host final : public SimDevice {
 public:
  Host(std::shared_ptr<io::Scheduler> scheduler, const SimDeviceOptions& options)
      : scheduler_(std::move(scheduler)),
        options_(options),
        number_(++devices),
        random_(options.seed),
        grid_(options.seed ^ 0x9e3779b97f4a7c15) {
    info_ = {"host", 4, options.memory_bytes, true, true};
  }

  ~Host() override { RunAll(); }

  const DeviceInfo& info() const override { return info_; }
  uint64_t calls() const override {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  void FailAt(uint64_t call) override {
    const std::lock_guard lock(mutex_);
    options_.fail_at = call;
  }
  void DamageAt(uint64_t launch) override {
    const std::lock_guard lock(mutex_);
    damage_at_ = launch;
  }
  uint32_t frames_at_once() const override {
    const std::lock_guard lock(mutex_);
    return frames_at_once_;
  }
  void OnLaunch(std::function<void(Kernel)> call) override {
    const std::lock_guard lock(mutex_);
    on_launch_ = std::move(call);
  }
  void RunAll() override {
    const std::lock_guard lock(mutex_);
    while (StepOf(AllStreams())) {
    }
  }

  void BeginCapture(Stream stream) override {
    const std::lock_guard lock(mutex_);
    const Result<StreamState*> state = Find(stream);
    CAIRN_CHECK(state.ok() && (*state)->captured == nullptr);
    (*state)->captured = std::make_unique<std::vector<Operation>>();
  }
  uint64_t EndCapture(Stream stream) override {
    const std::lock_guard lock(mutex_);
    const Result<StreamState*> state = Find(stream);
    CAIRN_CHECK(state.ok() && (*state)->captured != nullptr);
    graphs_.push_back(std::move(*std::exchange((*state)->captured, nullptr)));
    return graphs_.size();
  }
  Status LaunchGraph(uint64_t graph, Stream stream) override {
    const std::lock_guard lock(mutex_);
    CAIRN_RETURN_IF_ERROR(Call(kFailLaunch, "LaunchGraph"));
    CAIRN_CHECK(0 < graph && graph <= graphs_.size());
    for (const Operation& operation : graphs_[graph - 1]) {
      CAIRN_RETURN_IF_ERROR(Enqueue(stream, operation));
    }
    return Status::Ok();
  }
  Result<bool> IsCaptured(Stream stream) override {
    const std::lock_guard lock(mutex_);
    CAIRN_RETURN_IF_ERROR(Call(kFailQuery, "IsCaptured"));
    CAIRN_ASSIGN_OR_RETURN(const StreamState* state, Find(stream));
    return state->captured != nullptr;
  }

  Result<std::byte*> Allocate(Memory memory, uint64_t bytes) override {
    const std::lock_guard lock(mutex_);
    CAIRN_RETURN_IF_ERROR(Call(kFailAllocate, "Allocate", StatusCode::kOutOfMemory));
    if (bytes == 0) return Invalid("0 bytes were asked for");
    const bool fits = memory == Memory::kPinned || bytes <= options_.memory_bytes - used_;
    auto block = fits ? std::make_unique<io::GuardedMemory>(bytes) : nullptr;
    if (block == nullptr || !block->ok()) {
      return Status(StatusCode::kOutOfMemory, "device: no room for " + std::to_string(bytes) +
                                                  " bytes; " + std::to_string(used_) + " of " +
                                                  std::to_string(options_.memory_bytes) +
                                                  " are used");
    }
    if (memory == Memory::kDevice) used_ += bytes;
    std::byte* const at = block->data();
    std::memset(at, kRubbish, bytes);
    blocks_[at] = {std::move(block), bytes, memory, false};
    return at;
  }

  void Free(std::byte* at) override {
    const std::lock_guard lock(mutex_);
    const auto block = blocks_.find(at);
    CAIRN_CHECK(block != blocks_.end() && !block->second.freed);
    if (block->second.kind == Memory::kDevice) used_ -= block->second.bytes;
    block->second.freed = true;
    block->second.memory->Trap();
  }

  Status Register(std::span<std::byte> host) override {
    const std::lock_guard lock(mutex_);
    CAIRN_RETURN_IF_ERROR(Call(kFailAllocate, "Register", StatusCode::kOutOfMemory));
    if (host.empty()) return Invalid("no memory to register");
    registered_[host.data()] = host.size();
    return Status::Ok();
  }

  void Unregister(std::span<std::byte> host) override {
    const std::lock_guard lock(mutex_);
    CAIRN_CHECK(registered_.erase(host.data()) == 1);
  }

  Result<Stream> NewStream(Priority) override {
    const std::lock_guard lock(mutex_);
    CAIRN_RETURN_IF_ERROR(Call(kFailEvent, "NewStream"));
    streams_.emplace_back();
    return Stream{number_ << 32 | streams_.size()};
  }

  Result<Stream> AdoptStream(uintptr_t handle) override {
    const std::lock_guard lock(mutex_);
    CAIRN_RETURN_IF_ERROR(Call(kFailEvent, "AdoptStream"));
    if (handle == 0 && default_stream_ == 0) {
      streams_.emplace_back();
      default_stream_ = number_ << 32 | streams_.size();
    }
    const Stream stream{handle == 0 ? default_stream_ : handle};
    CAIRN_ASSIGN_OR_RETURN(StreamState * state, Find(stream));
    ++state->adopted;
    return stream;
  }

  Result<Event> NewEvent() override {
    const std::lock_guard lock(mutex_);
    CAIRN_RETURN_IF_ERROR(Call(kFailEvent, "NewEvent"));
    events_.emplace_back();
    return Event{number_ << 32 | events_.size()};
  }

  Result<Event> AdoptEvent(uintptr_t handle) override {
    const std::lock_guard lock(mutex_);
    CAIRN_RETURN_IF_ERROR(Call(kFailEvent, "AdoptEvent"));
    CAIRN_RETURN_IF_ERROR(Find(Event{handle}).status());
    events_.push_back({.last = nullptr, .owner = handle & UINT32_MAX});
    return Event{number_ << 32 | events_.size()};
  }

  void Return(Stream stream) override {
    const std::lock_guard lock(mutex_);
    const Result<StreamState*> state = Find(stream);
    CAIRN_CHECK(state.ok());
    GiveUp(*state);
  }

  void Return(Event event) override {
    const std::lock_guard lock(mutex_);
    const Result<EventState*> state = FindIn(events_, event.id, "the event");
    CAIRN_CHECK(state.ok());
    (*state)->returned = true;
  }

  Status Copy(Stream stream, std::span<const CopyPiece> pieces) override {
    const std::lock_guard lock(mutex_);
    CAIRN_RETURN_IF_ERROR(Call(kFailCopy, "Copy"));
    for (const CopyPiece& piece : pieces) {
      CAIRN_RETURN_IF_ERROR(Known(piece.to, piece.bytes, "a copy's destination"));
      CAIRN_RETURN_IF_ERROR(Known(piece.from, piece.bytes, "a copy's source"));
    }
    return Enqueue(stream, {.kind = Operation::kCopy, .pieces = {pieces.begin(), pieces.end()}});
  }

  Status Fill(Stream stream, std::span<std::byte> at, std::byte with) override {
    const std::lock_guard lock(mutex_);
    CAIRN_RETURN_IF_ERROR(Call(kFailCopy, "Fill"));
    CAIRN_RETURN_IF_ERROR(Known(at.data(), at.size(), "what is filled"));
    return Enqueue(stream, {.kind = Operation::kFill, .at = at, .with = with});
  }

  using Device::Launch;
  Status Launch(Stream stream, Kernel kernel, const LaunchShape& shape,
                std::span<const std::byte> arguments) override {
    const std::lock_guard lock(mutex_);
    CAIRN_RETURN_IF_ERROR(Call(kFailLaunch, "Launch"));
    CAIRN_CHECK(arguments.size() <= kArgumentBytesMax);
    return Enqueue(stream, {.kind = Operation::kLaunch,
                            .kernel = kernel,
                            .shape = shape,
                            .arguments = {arguments.begin(), arguments.end()}});
  }

  Status Record(Stream stream, Event event) override {
    const std::lock_guard lock(mutex_);
    CAIRN_RETURN_IF_ERROR(Call(kFailEvent, "Record"));
    CAIRN_ASSIGN_OR_RETURN(EventState * state, Find(event));
    CAIRN_ASSIGN_OR_RETURN(StreamState * in, Find(stream));
    auto record = std::make_shared<Recorded>();
    record->stream = static_cast<size_t>(in - streams_.data());
    record->number = in->ended + in->waiting.size();
    record->late = random_.Below(kLateMax + 1);
    CAIRN_RETURN_IF_ERROR(Enqueue(stream, {.kind = Operation::kRecord, .record = record}));
    state->last = std::move(record);
    return Status::Ok();
  }

  Status StreamWait(Stream stream, Event event) override {
    const std::lock_guard lock(mutex_);
    CAIRN_RETURN_IF_ERROR(Call(kFailEvent, "StreamWait"));
    CAIRN_ASSIGN_OR_RETURN(const EventState* state, Find(event));
    CAIRN_RETURN_IF_ERROR(Find(stream).status());
    if (state->last == nullptr) return Status::Ok();  // As the hardware has it.
    return Enqueue(stream, {.kind = Operation::kStreamWait, .record = state->last});
  }

  Status SetWord(Stream stream, uint32_t* word, uint32_t value) override {
    return Word(stream, {.kind = Operation::kSetWord, .word = word, .value = value}, "SetWord");
  }

  Status AwaitWord(Stream stream, const uint32_t* word, uint32_t at_least) override {
    return Word(
        stream,
        {.kind = Operation::kAwaitWord, .word = const_cast<uint32_t*>(word), .value = at_least},
        "AwaitWord");
  }

  // If there is no memory to run the awaited work it says so, and may be asked again.
  Result<bool> Reached(Event event) override {
    return CatchBadAlloc([&]() -> Result<bool> { return IsReached(event); });
  }
  Status Wait(Event event, uint64_t deadline_ns) override {
    return CatchBadAlloc([&]() -> Status { return WaitFor(event, deadline_ns); });
  }

  Status lost() const override {
    const std::lock_guard lock(mutex_);
    return lost_;
  }

 private:
  Result<bool> IsReached(Event event) {
    const std::lock_guard lock(mutex_);
    CAIRN_RETURN_IF_ERROR(Call(kFailQuery, "Reached"));
    CAIRN_ASSIGN_OR_RETURN(const EventState* state, Find(event));
    const RecordRef record = state->last;
    if (record == nullptr) return true;
    if (!record->done && random_.Below(2) == 0) StepOf(Before(*record));
    CAIRN_RETURN_IF_ERROR(lost_);
    if (record->done && record->late > 0) {
      --record->late;
      return false;
    }
    return record->done;
  }

  Status WaitFor(Event event, uint64_t deadline_ns) {
    for (;;) {
      {
        const std::lock_guard lock(mutex_);
        CAIRN_RETURN_IF_ERROR(Call(kFailQuery, "Wait"));
        CAIRN_ASSIGN_OR_RETURN(const EventState* state, Find(event));
        const RecordRef record = state->last;
        if (record == nullptr) return Status::Ok();
        while (!record->done && StepOf(Before(*record))) {
          // Now and then work that nobody waits for.
          if (random_.Below(16) == 0) StepOf(AllStreams());
        }
        CAIRN_RETURN_IF_ERROR(lost_);
        if (record->done) {
          record->late = 0;
          return Status::Ok();
        }
      }
      // It stands at a word that another thread will set.
      if (scheduler_->MonotonicNs() >= deadline_ns) {
        return Status(StatusCode::kDeadlineExceeded, "device: the event was not reached");
      }
      scheduler_->Sleep(kPollNs);
    }
  }

  // How far a stream has to go: operations up to this number.
  using Goals = std::map<size_t, uint64_t>;

  static void GiveUp(StreamState* state) {
    if (state->adopted == 0) {
      state->returned = true;
    } else {
      --state->adopted;
    }
  }

  // Begins every call: whether it fails.
  Status Call(uint32_t kind, const char* name, StatusCode code = StatusCode::kIoError) {
    CAIRN_RETURN_IF_ERROR(lost_);
    if ((options_.fail_kinds & kind) == 0) return Status::Ok();
    const uint64_t call = calls_++;
    if (call != options_.fail_at && !(options_.fail_on && call > options_.fail_at)) {
      return Status::Ok();
    }
    const std::string what = std::string("device: ") + name + ", call " + std::to_string(call) +
                             " of its kind, was made to fail";
    if (!options_.fail_lost) return Status(code, what);
    Lose(Status(StatusCode::kIoError, what));
    return lost_;
  }

  void Lose(Status why) {
    lost_ = std::move(why);
    for (StreamState& stream : streams_) stream.waiting.clear();
  }

  template <typename State>
  Result<State*> FindIn(std::vector<State>& all, uint64_t id, const char* what) {
    const uint64_t index = id & UINT32_MAX;
    if (id >> 32 != number_ || index == 0 || index > all.size()) {
      return Invalid(std::string(what) + " is of another device");
    }
    if (all[index - 1].returned) return Invalid(std::string(what) + " was returned");
    return &all[index - 1];
  }
  Result<StreamState*> Find(Stream stream) { return FindIn(streams_, stream.id, "the stream"); }
  // Using an adopted event that its owner has destroyed crashes CUDA.
  Result<EventState*> Find(Event event) {
    CAIRN_ASSIGN_OR_RETURN(EventState * state, FindIn(events_, event.id, "the event"));
    while (state->owner != 0) {
      state = &events_[state->owner - 1];
      CAIRN_CHECK(!state->returned);
    }
    return state;
  }

  // Whether the device may touch it: its own memory, pinned or registered.
  Status Known(const std::byte* at, uint64_t bytes, const char* what) const {
    const auto block = blocks_.upper_bound(at);
    if (block != blocks_.begin()) {
      const auto& [begin, found] = *std::prev(block);
      if (at + bytes <= begin + found.bytes) {
        return found.freed ? Invalid(std::string(what) + " was freed") : Status::Ok();
      }
    }
    const auto range = registered_.upper_bound(at);
    if (range != registered_.begin() &&
        at + bytes <= std::prev(range)->first + std::prev(range)->second) {
      return Status::Ok();
    }
    return Invalid(std::string(what) + " is neither the device's nor pinned");
  }

  Status Word(Stream stream, Operation operation, const char* name) {
    const std::lock_guard lock(mutex_);
    CAIRN_RETURN_IF_ERROR(Call(kFailEvent, name));
    CAIRN_RETURN_IF_ERROR(
        Known(reinterpret_cast<const std::byte*>(operation.word), sizeof(uint32_t), "the word"));
    return Enqueue(stream, std::move(operation));
  }

  Status Enqueue(Stream stream, Operation operation) {
    CAIRN_ASSIGN_OR_RETURN(StreamState * state, Find(stream));
    if (state->captured != nullptr) {
      if (operation.record != nullptr) return Invalid("an event in a stream that is captured");
      state->captured->push_back(std::move(operation));
      return Status::Ok();
    }
    state->waiting.push_back(std::move(operation));
    const auto index = static_cast<size_t>(state - streams_.data());
    // It is enqueued: if there is no memory it runs when somebody waits.
    static_cast<void>(CatchBadAlloc([&] {
      switch (random_.Below(4)) {
        case 0:  // All at once, as far as it can.
          while (StepOf({{index, UINT64_MAX}})) {
          }
          break;
        case 1: StepOf({{index, UINT64_MAX}}); break;
        default: break;  // When somebody waits.
      }
      return Status::Ok();
    }));
    return Status::Ok();
  }

  bool CanRun(const Operation& operation) const {
    if (operation.kind == Operation::kStreamWait) return operation.record->done;
    if (operation.kind != Operation::kAwaitWord) return true;
    return __atomic_load_n(operation.word, __ATOMIC_ACQUIRE) >= operation.value;
  }

  Goals AllStreams() const {
    Goals goals;
    for (size_t i = 0; i < streams_.size(); ++i) goals[i] = UINT64_MAX;
    return goals;
  }

  // The work that must run for this record: its stream up to there, and what that waits for.
  // Another stream may set a word.
  Goals Before(const Recorded& record) const {
    Goals goals;
    std::vector<std::pair<size_t, uint64_t>> open = {{record.stream, record.number}};
    while (!open.empty()) {
      const auto [index, number] = open.back();
      open.pop_back();
      const auto [goal, added] = goals.try_emplace(index, number);
      if (!added && goal->second >= number) continue;
      goal->second = number;
      const StreamState& stream = streams_[index];
      for (size_t i = 0; i < stream.waiting.size() && stream.ended + i <= number; ++i) {
        const Operation& operation = stream.waiting[i];
        if (CanRun(operation)) continue;
        if (operation.kind == Operation::kStreamWait) {
          open.emplace_back(operation.record->stream, operation.record->number);
        } else {
          AddSetters(operation.word, &open);
        }
      }
    }
    return goals;
  }
  void AddSetters(const uint32_t* word, std::vector<std::pair<size_t, uint64_t>>* open) const {
    for (size_t index = 0; index < streams_.size(); ++index) {
      const StreamState& stream = streams_[index];
      for (size_t i = 0; i < stream.waiting.size(); ++i) {
        const Operation& operation = stream.waiting[i];
        if (operation.kind == Operation::kSetWord && operation.word == word) {
          open->emplace_back(index, stream.ended + i);
        }
      }
    }
  }

  // Runs a step of one of these streams, drawn among those that can go on. False: none can.
  bool StepOf(const Goals& goals) {
    std::vector<StreamState*> ready;
    for (const auto& [index, goal] : goals) {
      StreamState& stream = streams_[index];
      if (!stream.waiting.empty() && stream.ended <= goal && CanRun(stream.waiting.front())) {
        ready.push_back(&stream);
      }
    }
    if (ready.empty()) return false;
    StreamState& stream = *ready[random_.Below(ready.size())];
    if (!RunStep(stream.waiting.front()) || !lost_.ok()) return lost_.ok();
    stream.waiting.pop_front();
    ++stream.ended;
    return true;
  }

  // True: the operation has ended.
  bool RunStep(Operation& operation) {
    switch (operation.kind) {
      case Operation::kCopy: return CopyStep(operation);
      case Operation::kFill:
        if (!Alive(operation.at.data(), operation.at.size(), "what is filled")) return false;
        std::fill(operation.at.begin(), operation.at.end(), operation.with);
        break;
      case Operation::kLaunch:
        if (on_launch_) on_launch_(operation.kernel);
        if (operation.kernel == Kernel::kDecodeScatter) LookAt(operation.arguments);
        RunOnHost(grid_, operation.kernel, operation.shape, operation.arguments);
        break;
      case Operation::kRecord: operation.record->done = true; break;
      case Operation::kSetWord:
        __atomic_store_n(operation.word, operation.value, __ATOMIC_RELEASE);
        break;
      case Operation::kStreamWait:
      case Operation::kAwaitWord: break;
    }
    return true;
  }

  void LookAt(std::span<const std::byte> arguments) {
    DecodeScatter k;
    CAIRN_CHECK(arguments.size() == sizeof(k));
    std::memcpy(&k, arguments.data(), sizeof(k));
    frames_at_once_ = std::max(frames_at_once_, k.count);
    const FrameToScatter* const end = k.frames + k.count;
    const FrameToScatter* const packed = std::find_if(
        k.frames, end, [](const FrameToScatter& f) { return f.codec == FrameCodec::kKv64; });
    // Its first word is a length.
    if (packed != end && damage_at_-- == 0) const_cast<uint8_t*>(packed->payload)[2] ^= 0xff;
  }

  bool CopyStep(Operation& operation) {
    for (const CopyPiece& piece : operation.pieces) {
      if (!Alive(piece.to, piece.bytes, "a copy's destination") ||
          !Alive(piece.from, piece.bytes, "a copy's source")) {
        return false;
      }
    }
    for (const CopyPiece& piece : operation.pieces) {
      if (operation.begun) {
        std::memcpy(piece.to, piece.from, piece.bytes);
      } else {
        std::memset(piece.to, kRubbish, piece.bytes);
      }
    }
    return std::exchange(operation.begun, true);
  }

  bool Alive(const std::byte* at, uint64_t bytes, const char* what) {
    const Status known = Known(at, bytes, what);
    if (known.ok()) return true;
    Lose(Status(StatusCode::kIoError, std::string(known.message()) + " while it was in flight"));
    return false;
  }

  const std::shared_ptr<io::Scheduler> scheduler_;
  SimDeviceOptions options_;
  const uint64_t number_;
  DeviceInfo info_;
  mutable std::mutex mutex_;
  SeededRandom random_;
  SimGrid grid_;
  std::map<const std::byte*, Block> blocks_;  // Freed ones, too.
  std::map<const std::byte*, uint64_t> registered_;
  uint64_t used_ = 0, calls_ = 0, damage_at_ = UINT64_MAX;
  uint32_t frames_at_once_ = 0;
  std::function<void(Kernel)> on_launch_;
  std::vector<StreamState> streams_;
  uint64_t default_stream_ = 0;  // Once somebody asked for it.
  std::vector<EventState> events_;
  std::vector<std::vector<Operation>> graphs_;
  Status lost_{};
};

}  // namespace

std::unique_ptr<SimDevice> MakeSimDevice(std::shared_ptr<io::Scheduler> scheduler,
                                         const SimDeviceOptions& options) {
  return std::make_unique<Host>(std::move(scheduler), options);
}

}  // namespace cairn::gpu
