// SPDX-License-Identifier: Apache-2.0
#include "sim/shared_areas.h"

#include <utility>

#include "base/core/align.h"
#include "base/core/check.h"
#include "base/io/path.h"

namespace cairn::io {
namespace {

constexpr uint64_t kSimPageBytes = 4096;
constexpr uint64_t kAnswerNs = 10'000'000'000;

std::string Hex64(uint64_t value) {
  std::string text(16, '0');
  for (size_t i = text.size(); i-- > 0; value >>= 4) text[i] = "0123456789abcdef"[value & 15];
  return text;
}

}  // namespace

struct SimAreaProcess::State {
  uint64_t user = 0;
  bool killed = false, stopped = false;  // Under the machine's mutex.
};

// One process's mapping.
class SimAreaProcess::Area final : public SharedArea {
 public:
  Area(SimAreas* machine, std::shared_ptr<State> process, std::shared_ptr<SimAreas::Shared> shared)
      : machine_(*machine), process_(std::move(process)), shared_(std::move(shared)) {}

  ~Area() override {
    const MutexLock lock(&machine_.mutex_);
    if (shared_->creator == process_) machine_.areas_.erase(shared_->address.socket);
    shared_.reset();
  }
  std::span<std::byte> bytes() const override {
    const MutexLock lock(&machine_.mutex_);
    return process_->killed ? std::span<std::byte>() : std::span(shared_->bytes);
  }
  const std::string& address() const override { return address_; }
  bool is_creator() const override { return shared_->creator == process_; }
  AreaCounts counts() const override {
    const MutexLock lock(&machine_.mutex_);
    return is_creator() ? shared_->counts : AreaCounts();
  }

 private:
  SimAreas& machine_;
  const std::shared_ptr<State> process_;
  std::shared_ptr<SimAreas::Shared> shared_;
  const std::string address_ = shared_->address.Text();
};

SimAreaProcess::SimAreaProcess(SimAreas* machine, std::shared_ptr<State> state)
    : machine_(*machine), state_(std::move(state)) {}

SimAreaProcess::~SimAreaProcess() = default;

void SimAreaProcess::Kill() {
  const MutexLock lock(&machine_.mutex_);
  state_->killed = true;
}

void SimAreaProcess::Stop(bool stopped) {
  const MutexLock lock(&machine_.mutex_);
  state_->stopped = stopped;
}

Result<std::unique_ptr<SharedArea>> SimAreaProcess::Create(const std::string& directory,
                                                           uint64_t bytes) {
  CAIRN_RETURN_IF_ERROR(CheckPath(directory));
  if (bytes == 0 || bytes > kAreaBytesMax) {
    return Status(StatusCode::kInvalidArgument, "bytes of a shared area");
  }
  CAIRN_RETURN_IF_ERROR(machine_.world_.files->Info(directory).status());
  if (machine_.Fails()) return Status(StatusCode::kOutOfMemory, "a shared area: no memory");
  auto shared = std::make_shared<SimAreas::Shared>();
  shared->creator = state_;
  AreaAddress& address = shared->address;
  for (uint8_t& byte : address.nonce) {
    byte = static_cast<uint8_t>(machine_.world_.scheduler->Random64());
  }
  address.bytes = AlignUp(bytes, kSimPageBytes);
  address.socket =
      "/" + NormalPath(JoinPath(directory, "area-")) + Hex64(machine_.world_.scheduler->Random64());
  shared->bytes.resize(address.bytes);
  {
    const MutexLock lock(&machine_.mutex_);
    machine_.areas_[address.socket] = shared;
  }
  return std::unique_ptr<SharedArea>(std::make_unique<Area>(&machine_, state_, std::move(shared)));
}

Result<std::unique_ptr<SharedArea>> SimAreaProcess::Map(const std::string& text) {
  CAIRN_ASSIGN_OR_RETURN(const AreaAddress address, AreaAddress::Parse(text));
  if (machine_.Fails()) return Status(StatusCode::kIoError, address.socket + ": connect: refused");
  Scheduler& scheduler = *machine_.world_.scheduler;
  const uint64_t deadline_ns = scheduler.MonotonicNs() + kAnswerNs;
  while (true) {
    {
      const MutexLock lock(&machine_.mutex_);
      const auto found = machine_.areas_.find(address.socket);
      auto shared = found == machine_.areas_.end() ? nullptr : found->second.lock();
      if (shared == nullptr || shared->creator->killed) {
        return Status(StatusCode::kNotFound, address.socket + ": the creator has ended");
      }
      if (!shared->creator->stopped) {
        const bool same_user = shared->creator->user == state_->user;
        const bool same_nonce = shared->address.HasNonce(address.nonce);
        ++(same_user && same_nonce ? shared->counts.mapped : shared->counts.refused);
        if (!same_user) {
          return Status(StatusCode::kIoError, address.socket + ": it is of another user");
        }
        if (!same_nonce) {
          return Status(StatusCode::kConflict, address.socket + ": it is another area");
        }
        return std::unique_ptr<SharedArea>(
            std::make_unique<Area>(&machine_, state_, std::move(shared)));
      }
    }
    if (scheduler.MonotonicNs() >= deadline_ns) {
      return Status(StatusCode::kDeadlineExceeded, address.socket + ": no answer");
    }
    scheduler.Sleep(1'000'000);
  }
}

// ---------------------------------------------------------------- the machine

SimAreas::~SimAreas() { CAIRN_CHECK(living() == 0); }

std::unique_ptr<SimAreaProcess> SimAreas::NewProcess(uint64_t user) {
  auto state = std::make_shared<SimAreaProcess::State>();
  state->user = user;
  return std::unique_ptr<SimAreaProcess>(new SimAreaProcess(this, std::move(state)));
}

void SimAreas::FailAt(uint64_t call) {
  const MutexLock lock(&mutex_);
  fail_at_ = call == UINT64_MAX ? call : calls_ + call;
}

bool SimAreas::Fails() {
  const MutexLock lock(&mutex_);
  return calls_++ == fail_at_;
}

size_t SimAreas::living() const {
  const MutexLock lock(&mutex_);
  size_t count = 0;
  for (const auto& [socket, area] : areas_) count += area.expired() ? 0 : 1;
  return count;
}

}  // namespace cairn::io
