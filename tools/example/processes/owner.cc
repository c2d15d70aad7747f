// SPDX-License-Identifier: Apache-2.0
#include "tools/example/processes/owner.h"

#include <cairn/shared_memory.h>
#include <cairn/store.h>
#include <sys/stat.h>

#include <cstdio>

#include "tools/example/processes/messages.h"

namespace processes {

namespace {

constexpr uint32_t kSlots = 4;

std::string NameOfConversation(uint64_t conversation) {
  return "conversation " + std::to_string(conversation);
}

// Serves one worker after the other. A worker that ends, in whatever way, costs nothing here: what
// it was told is counted as failed, and its slots are free again.
class Owner {
 public:
  Owner(cairn::Store store, cairn::ModelId model, cairn::SharedMemory area, cairn::KvSlots slots)
      : store_(std::move(store)), model_(model), area_(std::move(area)), slots_(std::move(slots)) {}

  void Serve(const Channel& worker) {
    Message message;
    message.kind = Kind::kArea;
    area_.address().copy(message.address, sizeof message.address - 1);
    if (!worker.Send(message)) return;
    while (worker.Receive(&message)) {
      cairn::Result<bool> goes_on = false;
      if (message.kind == Kind::kBegin) goes_on = Load(worker, message);
      if (message.kind == Kind::kComputed) goes_on = Save(worker, message);
      if (!goes_on.ok()) {
        std::fprintf(stderr, "owner: %s\n", goes_on.status().ToString().c_str());
      }
      if (!goes_on.ok() || !*goes_on) return;
    }
  }
  cairn::KvSlots& slots() { return slots_; }

 private:
  // The rows of a stored conversation into a slot, and from there to the worker. False: the worker
  // has ended, or said something else.
  cairn::Result<bool> Load(const Channel& worker, Message message) {
    message.kind = Kind::kLoad;
    message.begin = message.end = 0;
    const auto found = store_.FindBranch(NameOfConversation(message.conversation));
    if (found.ok()) {
      CAIRN_ASSIGN_OR_RETURN(message.end, found->length());
    }
    // A branch that was made, and not appended to, has no rows.
    if (message.end == 0) return worker.Send(message);
    if (message.end > kTokensMax) {
      return cairn::Status(cairn::StatusCode::kInvalidArgument, "a conversation is too long");
    }
    CAIRN_ASSIGN_OR_RETURN(const cairn::SlotUse use, slots_.BeginLoad());
    CAIRN_ASSIGN_OR_RETURN(const std::span<std::byte> slot, slots_.BytesOf(use));
    CAIRN_ASSIGN_OR_RETURN(const cairn::OwnedKvView view, SlotView(slot, 0, message.end));
    const cairn::Status restored =
        found->Restore({.tokens = message.tokens, .into = view}).status();
    CAIRN_ASSIGN_OR_RETURN(const bool is_there, slots_.EndRestore(use, restored.ok()));
    if (!is_there) return restored;
    message.use = use;
    return worker.Send(message) && Await(worker, use);
  }

  // The rows of new tokens into a slot, and from there into the store. False as of Load.
  cairn::Result<bool> Save(const Channel& worker, Message message) {
    std::vector<cairn::TokenId> tokens(message.tokens,
                                       message.tokens + (message.end - message.begin));
    CAIRN_ASSIGN_OR_RETURN(const cairn::SlotUse use, slots_.BeginSave());
    message.kind = Kind::kSave;
    message.use = use;
    if (!worker.Send(message) || !Await(worker, use)) return false;
    CAIRN_RETURN_IF_ERROR(slots_.BeginAppend(use));
    const cairn::Status appended = Append(message, tokens, use);
    CAIRN_RETURN_IF_ERROR(slots_.EndAppend(use));
    CAIRN_RETURN_IF_ERROR(appended);
    message.kind = Kind::kSaved;
    return worker.Send(message);
  }

  // One append holds the rows of all ranks, and it counts as a whole or not at all.
  cairn::Status Append(const Message& message, const std::vector<cairn::TokenId>& tokens,
                       const cairn::SlotUse& use) {
    CAIRN_ASSIGN_OR_RETURN(const std::span<std::byte> slot, slots_.BytesOf(use));
    CAIRN_ASSIGN_OR_RETURN(const cairn::OwnedKvView view,
                           SlotView(slot, message.begin, message.end));
    const std::string name = NameOfConversation(message.conversation);
    auto branch = store_.FindBranch(name);
    if (branch.status().code() == cairn::StatusCode::kNotFound) {
      branch = store_.CreateBranch(model_, {.name = name});
    }
    CAIRN_RETURN_IF_ERROR(branch.status());
    return branch->AppendSync({.tokens = tokens, .kv = view}, {.expected_length = message.begin})
        .status();
  }

  // The worker's report on a slot. False: it failed, or there is no worker any more.
  bool Await(const Channel& worker, const cairn::SlotUse& use) {
    Message message;
    if (!worker.Receive(Kind::kCopied, &message) || message.use != use) return false;
    const auto news = slots_.Report(message.use, 0, message.copied != 0);
    return news.ok() && news->all_copied;
  }

  cairn::Store store_;
  const cairn::ModelId model_;
  const cairn::SharedMemory area_;
  cairn::KvSlots slots_;
};

cairn::Result<Owner> MakeOwner(const std::string& path) {
  cairn::Options options;
  options.create_if_missing = true;
  options.segment_bytes = 1 << 20;
  CAIRN_ASSIGN_OR_RETURN(cairn::Store store, cairn::Store::Open(path, options));
  CAIRN_ASSIGN_OR_RETURN(const cairn::ModelId model, store.RegisterModel(Spec()));
  CAIRN_ASSIGN_OR_RETURN(cairn::SharedMemory area,
                         cairn::SharedMemory::Create(path, kSlots * SlotBytes()));
  CAIRN_ASSIGN_OR_RETURN(cairn::KvSlots slots,
                         cairn::KvSlots::Make(area.bytes(), SlotBytes(), /*ranks=*/1));
  return Owner(std::move(store), model, std::move(area), std::move(slots));
}

// Where workers find this process; a name that a killed one left is taken over.
int Listen(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  const sockaddr_un name = NameOf(path);
  unlink(path.c_str());
  if (fd < 0 || fchmod(fd, 0600) != 0 ||
      bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0 || listen(fd, 4) != 0) {
    std::perror(path.c_str());
    return -1;
  }
  return fd;
}

}  // namespace

int RunOwner(const std::string& store, const std::string& socket_path) {
  auto owner = MakeOwner(store);
  if (!owner.ok()) {
    std::fprintf(stderr, "owner: %s\n", owner.status().ToString().c_str());
    return 1;
  }
  const int listening = Listen(socket_path);
  if (listening < 0) return 1;
  std::puts("ready");
  std::fflush(stdout);
  while (true) {
    {
      const Channel worker(accept4(listening, nullptr, nullptr, SOCK_CLOEXEC));
      owner->Serve(worker);
      worker.AwaitEnd();
    }
    // So it writes to no slot any more.
    static_cast<void>(owner->slots().RankGone(0));
    static_cast<void>(owner->slots().RankCame(0));
  }
}

}  // namespace processes
