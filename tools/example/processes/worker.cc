// SPDX-License-Identifier: Apache-2.0
#include "tools/example/processes/worker.h"

#include <cairn/copy_kv.h>
#include <cairn/shared_memory.h>

#include <cstdio>

#include "tools/example/processes/messages.h"

namespace processes {

namespace {

constexpr uint64_t kStepTokens = 24;  // Are computed before they are saved.
constexpr uint64_t kConversations = 8;

// What a worker does with one owner.
class Worker {
 public:
  Worker(const Channel* owner, cairn::SharedMemory area)
      : owner_(*owner),
        area_(std::move(area)),
        copier_(cairn::KvCopier::Make(Spec(), Spec()).value()) {}

  // False: the owner is gone, and all that was not saved with it.
  bool Converse(uint64_t conversation) {
    ToyModel model(conversation);
    if (!Load(conversation, &model)) return false;
    while (model.tokens().size() + kStepTokens <= kTokensMax) {
      const uint64_t begin = model.tokens().size();
      for (uint64_t i = 0; i < kStepTokens; ++i) model.Step();
      if (!Save(conversation, begin, &model)) return false;
      // Turns of several conversations come in between.
      if (begin % (3 * kStepTokens) == 0) break;
    }
    return true;
  }

 private:
  bool Load(uint64_t conversation, ToyModel* model) {
    Message message;
    message.kind = Kind::kBegin;
    message.conversation = conversation;
    if (!owner_.Send(message) || !owner_.Receive(Kind::kLoad, &message)) return false;
    if (message.end == 0) return true;
    const bool copied = Copy(message, 0, message.end, /*to_slot=*/false, model);
    if (copied) model->Resume({message.tokens, message.tokens + message.end});
    return Report(message, copied) && copied;
  }

  bool Save(uint64_t conversation, uint64_t begin, ToyModel* model) {
    Message message;
    message.kind = Kind::kComputed;
    message.conversation = conversation;
    message.begin = begin;
    message.end = model->tokens().size();
    std::copy(model->tokens().begin() + static_cast<ptrdiff_t>(begin), model->tokens().end(),
              message.tokens);
    if (!owner_.Send(message) || !owner_.Receive(Kind::kSave, &message)) return false;
    const bool copied = Copy(message, begin, model->tokens().size(), /*to_slot=*/true, model);
    if (!Report(message, copied) || !owner_.Receive(Kind::kSaved, &message)) return false;
    std::printf("saved %llu %llu\n", static_cast<unsigned long long>(conversation),
                static_cast<unsigned long long>(message.end));
    std::fflush(stdout);
    return true;
  }

  // Between the slot that the message names and the model's cache.
  bool Copy(const Message& message, uint64_t begin, uint64_t end, bool to_slot, ToyModel* model) {
    const auto slot = cairn::KvSlots::BytesOf(area_.bytes(), SlotBytes(), message.use.slot);
    if (!slot.ok()) return false;
    const auto in_slot = SlotView(*slot, begin, end);
    if (!in_slot.ok()) return false;
    const cairn::OwnedKvView in_cache = model->View(begin, end);
    const auto copied = to_slot ? copier_.Copy(*in_cache.view(), *in_slot->view())
                                : copier_.Copy(*in_slot->view(), *in_cache.view());
    return copied.ok() && *copied == Spec().token_bytes() * (end - begin);
  }

  bool Report(Message message, bool copied) {
    message.kind = Kind::kCopied;
    message.copied = copied ? 1 : 0;
    return owner_.Send(message);
  }

  const Channel& owner_;
  const cairn::SharedMemory area_;
  const cairn::KvCopier copier_;
};

// Until the owner is gone.
void WorkWith(const Channel& owner) {
  Message message;
  if (!owner.Receive(Kind::kArea, &message)) return;
  auto area = cairn::SharedMemory::Map(message.address);
  if (!area.ok()) {
    std::fprintf(stderr, "worker: %s\n", area.status().ToString().c_str());
    return;
  }
  Worker worker(&owner, std::move(*area));
  for (uint64_t turn = 0;; ++turn) {
    // New conversations begin as old ones grow full.
    if (!worker.Converse(turn / 40 * kConversations + turn % kConversations)) return;
  }
}

}  // namespace

int RunWorker(const std::string& socket_path) {
  const sockaddr_un name = NameOf(socket_path);
  while (true) {
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    const Channel owner(fd);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0) {
      WorkWith(owner);
    }
    usleep(2000);  // The owner is starting, or starting again.
  }
}

}  // namespace processes
