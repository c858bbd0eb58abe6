const o=15;export{o as P};
