const o=12;export{o as P};
