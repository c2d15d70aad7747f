// SPDX-License-Identifier: Apache-2.0
//
// What the two processes of the example say to each other, over a Unix socket that keeps messages
// whole. Rows of KV go through slots of shared memory, and are in no message. A real engine has a
// channel of its own for this.
//
//   owner                                     worker
//   kArea: the address of the area
//                                             kBegin: a conversation is to go on
//   kLoad: its tokens; their KV is in a slot
//                                             kCopied: the slot's rows are in the cache
//                                             kComputed: new tokens
//   kSave: a slot for their KV
//                                             kCopied: the rows are in the slot
//   kSaved: how long the stored conversation is
#pragma once

#include <cairn/kv_slots.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "tools/example/processes/toy_model.h"

namespace processes {

enum class Kind : uint32_t { kArea = 1, kBegin, kLoad, kComputed, kSave, kCopied, kSaved };

struct Message {
  Kind kind = Kind::kArea;
  uint32_t copied = 0;
  uint64_t conversation = 0;
  uint64_t begin = 0, end = 0;  // Positions.
  cairn::SlotUse use{};
  cairn::TokenId tokens[kTokensMax] = {};  // Of these positions.
  char address[4096] = {};
};

// A message that the other side may have made up: its lengths are looked at before they are used.
inline bool IsSound(const Message& message) {
  return message.begin <= message.end && message.end <= kTokensMax &&
         message.address[sizeof message.address - 1] == '\0';
}

// One end of the socket. False: the other process has ended, or is to be treated so.
class Channel {
 public:
  explicit Channel(int fd = -1) : fd_(fd) {}
  ~Channel() {
    if (fd_ >= 0) close(fd_);
  }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  bool Send(const Message& message) const {
    return send(fd_, &message, sizeof message, MSG_NOSIGNAL) == sizeof message;
  }
  bool Receive(Message* message) const {
    return recv(fd_, message, sizeof *message, MSG_TRUNC) == sizeof *message && IsSound(*message);
  }
  // Until the other process has closed its end, or is dead. Neither touches shared memory any more.
  void AwaitEnd() const {
    Message message;
    shutdown(fd_, SHUT_WR);
    while (recv(fd_, &message, sizeof message, 0) > 0) {
    }
  }
  // The next message, which has to be of this kind.
  bool Receive(Kind kind, Message* message) const {
    return Receive(message) && message->kind == kind;
  }

 private:
  const int fd_;
};

inline sockaddr_un NameOf(const std::string& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  path.copy(name.sun_path, sizeof name.sun_path - 1);
  return name;
}

// Memory of a slot as KV of positions [begin, end), dense: [layer][plane][head][token][element].
inline cairn::Result<cairn::OwnedKvView> SlotView(std::span<std::byte> slot, uint64_t begin,
                                                  uint64_t end) {
  std::vector<std::byte*> tensors;
  for (uint32_t i = 0; i < kLayers * 2; ++i) {
    tensors.push_back(slot.data() + i * kHeads * kTokensMax * kRowBytes);
  }
  return cairn::OwnedKvView::Make(Spec(),
                                  {{.layout = cairn::TensorLayout::kHeadMajor,
                                    .tensors = tensors,
                                    .tokens = kTokensMax,
                                    .position = begin,
                                    .count = end - begin}},
                                  cairn::KvUse::kRestore);
}

inline uint64_t SlotBytes() { return Spec().token_bytes() * kTokensMax; }

}  // namespace processes
