// One photo from the camera, in a dialog of the page or with the phone's camera app.

import { $, button, make } from "./dom.js";

/** Whether to show the camera in the page; the camera app of a phone is better. */
const hasOwnView = () =>
  navigator.mediaDevices?.getUserMedia && !matchMedia("(pointer: coarse)").matches;

/** Calls `onPhoto(file)` for a photo taken; throws if the camera cannot be used. */
export async function takePhoto(onPhoto) {
  if (!hasOwnView()) {
    $("ask-capture").click();
    return;
  }
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
  } catch {
    throw new Error("The camera is not available, or this page has no permission to use it.");
  }
  showView(stream, onPhoto);
}

function showView(stream, onPhoto) {
  const dialog = $("dialog");
  const video = make("video", { autoplay: true, muted: true, playsinline: true });
  video.srcObject = stream;
  const shoot = async () => {
    const canvas = make("canvas", { width: video.videoWidth, height: video.videoHeight });
    canvas.getContext("2d").drawImage(video, 0, 0);
    const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", 0.95));
    dialog.close("");
    onPhoto(new File([blob], "camera.jpg", { type: "image/jpeg" }));
  };
  dialog.replaceChildren(
    make("h2", { id: "dialog-title" }, "Camera"),
    video,
    make(
      "div",
      { class: "row end" },
      button("Cancel", () => dialog.close("")),
      button("Take photo", shoot, { class: "primary" }),
    ),
  );
  const stop = () => stream.getTracks().forEach((track) => track.stop());
  dialog.addEventListener("close", stop, { once: true });
  dialog.showModal();
}
